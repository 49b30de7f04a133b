"""The error of this room."""

from marin_core.errors import MarinError


class ScalingError(MarinError):
    """The runs do not determine what was asked; the message says what is missing."""
