"""Scaling analysis: runs to IsoFLOP minima, to token and loss laws, to a forecast. Pure functions on tables."""

from marin_core.scaling.bootstrap import Bootstrap, Curve, Interval, bootstrap
from marin_core.scaling.errors import ScalingError
from marin_core.scaling.isoflop import IsoFlop, fit_isoflop
from marin_core.scaling.laws import LossLaw, fit_loss_law, fit_token_law

__all__ = [
    "Bootstrap",
    "Curve",
    "Interval",
    "IsoFlop",
    "LossLaw",
    "ScalingError",
    "bootstrap",
    "fit_isoflop",
    "fit_loss_law",
    "fit_token_law",
]
