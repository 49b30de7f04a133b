"""From a task's soft metric to its hard one: a sigmoid between chance and 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

_STARTING_WIDTHS = (0.1, 0.3, 1.0)
_STARTING_PLACES = (0.0, 0.5, 1.0)
# Midpoint and width stay within so many times the range of the costs that were seen.
_REACH = 20.0


@dataclass(frozen=True)
class Sigmoid:
    """hard = floor + (1 - floor) / (1 + exp((cost - midpoint) / width)).

    `cost` is the soft metric with its sign such that less is better, in its own unit; `hard` and `floor` (chance) are
    shares of 1. `width` is positive: a lower cost never lowers the score.
    """

    floor: float
    midpoint: float
    width: float

    def hard(self, cost: float) -> float:
        return float(self.floor + (1 - self.floor) * expit((self.midpoint - cost) / self.width))


def fit_sigmoid(
    costs: Sequence[float], hards: Sequence[float], floor: float, *, start: Sigmoid | None = None
) -> Sigmoid:
    """Least squares over models, each with the same weight, from several starts or from a sigmoid known to be close.

    At least two different costs are needed.
    """
    cost, hard = np.asarray(costs, dtype=np.float64), np.asarray(hards, dtype=np.float64)
    low, span = float(cost.min()), float(np.ptp(cost))

    # In units of the range of the costs: place 0 is the lowest of them, 1 the highest.
    def residuals(parameters: np.ndarray) -> np.ndarray:
        place, log_width = parameters
        share = expit((place - (cost - low) / span) / np.exp(log_width))
        return floor + (1 - floor) * share - hard

    def jacobian(parameters: np.ndarray) -> np.ndarray:
        place, log_width = parameters
        width = np.exp(log_width)
        argument = (place - (cost - low) / span) / width
        slope = (1 - floor) * expit(argument) * expit(-argument)
        return np.stack([slope / width, -slope * argument], axis=1)

    bounds = ([-_REACH, np.log(1e-3)], [1 + _REACH, np.log(_REACH)])
    if start:
        starts = [((start.midpoint - low) / span, np.log(start.width / span))]
    else:
        starts = [(place, np.log(width)) for place in _STARTING_PLACES for width in _STARTING_WIDTHS]
    inside = [np.clip(s, *bounds) for s in starts]
    fits = [least_squares(residuals, s, jac=cast("Any", jacobian), bounds=bounds) for s in inside]
    place, log_width = min(fits, key=lambda fit: fit.cost).x
    return Sigmoid(floor, low + float(place) * span, float(np.exp(log_width)) * span)
