"""Scaling analysis: runs to IsoFLOP minima, to token and loss laws, to forecasts. Pure functions on tables."""

from marin_core.scaling.bootstrap import Bootstrap, Curve, Interval, bootstrap
from marin_core.scaling.downstream import Scored, TaskForecast, forecast_task
from marin_core.scaling.errors import ScalingError
from marin_core.scaling.isoflop import IsoFlop, fit_isoflop
from marin_core.scaling.laws import OBJECTIVES, LossLaw, Objective, fit_loss_law, fit_token_law
from marin_core.scaling.outliers import Outlier, find_outliers
from marin_core.scaling.sensitivity import LeftOut, Refit, leave_one_out, sensitivity
from marin_core.scaling.sentences import (
    forecast_sentence,
    law_sentence,
    registration_sentence,
    seed_spread_percent,
    token_law_sentence,
    verdict_sentence,
)
from marin_core.scaling.sigmoid import Sigmoid, fit_sigmoid

__all__ = [
    "OBJECTIVES",
    "Bootstrap",
    "Curve",
    "Interval",
    "IsoFlop",
    "LeftOut",
    "LossLaw",
    "Objective",
    "Outlier",
    "Refit",
    "ScalingError",
    "Scored",
    "Sigmoid",
    "TaskForecast",
    "bootstrap",
    "find_outliers",
    "fit_isoflop",
    "fit_loss_law",
    "fit_sigmoid",
    "fit_token_law",
    "forecast_sentence",
    "forecast_task",
    "law_sentence",
    "leave_one_out",
    "registration_sentence",
    "seed_spread_percent",
    "sensitivity",
    "token_law_sentence",
    "verdict_sentence",
]
