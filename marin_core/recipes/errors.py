"""The errors of this room."""

from marin_core.errors import MarinError


class RecipeError(MarinError):
    """A budget or a setting that the recipe cannot serve; the message names the value and the remedy."""
