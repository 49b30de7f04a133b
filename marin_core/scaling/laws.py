"""The two laws fitted through IsoFLOP minima: compute-optimal tokens and the loss that they reach."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import least_squares

from marin_core.recipes import TokenLaw
from marin_core.scaling.errors import ScalingError

MIN_BUDGETS = 3
# Compute is rescaled by its geometric mean, which keeps the coefficient of order one whatever the budgets are.
_MIN_EXPONENT, _MAX_EXPONENT = 1e-4, 2.0
_EXPONENTS = np.geomspace(1e-3, _MAX_EXPONENT, 100)
# Where the valley of equally good laws is flat, scipy's own tolerance of 1e-8 stops on its way.
_TOLERANCE = 1e-12
# A limit of the Huber loss above the residuals of any sensible fit: there it is least squares.
_WIDE_HUBER = 1e-2


@dataclass(frozen=True)
class Objective:
    """What a fit of the loss law minimizes: squared residuals of the loss (nats) or of its logarithm, or their Huber
    loss, which grows linearly beyond `huber` (in the residuals' unit)."""

    name: str
    of_logarithm: bool = True
    huber: float | None = None


# The one that the laws are fitted with, and others that are as good a choice.
LEAST_SQUARES_LOG = Objective("least squares on log loss")
OBJECTIVES = (
    LEAST_SQUARES_LOG,
    Objective("least squares on loss", of_logarithm=False),
    Objective("Huber on log loss, δ = 1e-3", huber=1e-3),
    Objective("Huber on log loss, δ = 1e-4", huber=1e-4),
)


@dataclass(frozen=True)
class LossLaw:
    """L(C) = E + A * C^-alpha: nats per token at the compute-optimal model of budget C (FLOPs).

    Stored with A at a reference budget (`scale * (C / reference)^-alpha`), which stays finite for any budget.
    """

    irreducible: float
    scale: float
    exponent: float
    reference: float

    def loss(self, flops: float) -> float:
        return self.irreducible + self.scale * (flops / self.reference) ** -self.exponent

    @property
    def coefficient(self) -> float:
        """A of the formula."""
        return self.scale * self.reference**self.exponent

    def to_json(self) -> dict[str, float]:
        """The fields, and the coefficient for whoever reads the formula; `from_json` restores the law."""
        return {**dataclasses.asdict(self), "coefficient": self.coefficient}

    @classmethod
    def from_json(cls, data: Mapping[str, float]) -> "LossLaw":
        return cls(**{name: value for name, value in data.items() if name != "coefficient"})


def fit_token_law(flops: Sequence[float], optimal_tokens: Sequence[float]) -> TokenLaw:
    """D*(C): a straight line in log-log through at least two minima.

    Raises:
        ScalingError: fewer than two distinct budgets.
    """
    if len(set(flops)) < 2:
        raise ScalingError(
            f"a token law needs usable minima at 2 budgets, there are {len(set(flops))}; see delphi/isoflop"
        )
    intercept, slope = np.polynomial.polynomial.polyfit(np.log(flops), np.log(optimal_tokens), 1)
    return TokenLaw(coefficient=float(np.exp(intercept)), exponent=float(slope))


def fit_loss_law(
    flops: Sequence[float],
    losses: Sequence[float],
    *,
    with_offset: bool = True,
    objective: Objective = LEAST_SQUARES_LOG,
) -> LossLaw:
    """Fit from the best of many exponents. `with_offset=False` forces E = 0.

    A Huber loss is reached from least squares by lowering its limit step by step: from far away its slopes say too
    little.

    Raises:
        ScalingError: fewer than three distinct budgets (two without offset).
    """
    needed = MIN_BUDGETS if with_offset else MIN_BUDGETS - 1
    if len(set(flops)) < needed:
        raise ScalingError(
            f"a loss law needs usable minima at {needed} budgets, there are {len(set(flops))}; see delphi/isoflop"
        )
    log_c = np.log(np.asarray(flops, dtype=np.float64))
    reference = float(np.exp(log_c.mean()))
    problem = _Problem(log_c - log_c.mean(), np.asarray(losses, dtype=np.float64), objective.of_logarithm)
    floor = float(np.min(losses))
    ceiling = floor * (1 - 1e-6) if with_offset else 0.0
    best = problem.solve(problem.search(ceiling), ceiling)
    for limit in _limits(objective.huber):
        best = problem.solve(best, ceiling, limit)
    irreducible, log_scale, exponent = (float(v) for v in best)
    return LossLaw(irreducible, float(np.exp(log_scale)), exponent, reference)


def _limits(huber: float | None) -> list[float]:
    """Limits of the Huber loss on the way to `huber`, about a third of the one before each."""
    if huber is None:
        return []
    return list(np.geomspace(max(_WIDE_HUBER, huber), huber, 1 + max(0, round(2 * np.log10(_WIDE_HUBER / huber)))))


@dataclass(frozen=True)
class _Problem:
    """Residuals of E + exp(log scale - alpha * x) at `losses`, x = log of compute over its geometric mean."""

    x: np.ndarray
    losses: np.ndarray
    of_logarithm: bool

    def search(self, ceiling: float) -> tuple[float, float, float]:
        """E, log scale and exponent near the best of all: at a given exponent the rest is a straight line."""
        power = np.exp(-np.outer(_EXPONENTS, self.x))
        off, spread = self.losses - self.losses.mean(), power - power.mean(axis=1, keepdims=True)
        slope = (spread @ off) / (spread**2).sum(axis=1)
        offset = np.clip(self.losses.mean() - slope * power.mean(axis=1), 0.0, ceiling)
        above = self.losses - offset[:, None]
        scale = (power * above).sum(axis=1) / (power**2).sum(axis=1)
        best = int(np.argmin(((scale[:, None] * power - above) ** 2).sum(axis=1)))
        return float(offset[best]), float(np.log(scale[best])), float(_EXPONENTS[best])

    def solve(self, start: Sequence[float] | np.ndarray, ceiling: float, huber: float | None = None) -> np.ndarray:
        """E, log scale and exponent that scipy finds from `start` with 0 <= E <= `ceiling`."""
        # Without an offset it is no parameter: between two equal bounds no search makes a step.
        fixed = np.zeros(0 if ceiling else 1)
        lower, upper = [0.0, -np.inf, _MIN_EXPONENT], [ceiling, np.inf, _MAX_EXPONENT]
        found = least_squares(
            lambda free: self._residuals(np.append(fixed, free)),
            np.clip(start, lower, upper)[len(fixed) :],
            jac=cast("Any", lambda free: self._jacobian(np.append(fixed, free))[:, len(fixed) :]),
            bounds=(lower[len(fixed) :], upper[len(fixed) :]),
            x_scale="jac",
            method="dogbox",  # finds what "trf" finds, in half of its steps
            loss="huber" if huber else "linear",
            f_scale=huber or 1.0,
            ftol=_TOLERANCE,
            xtol=_TOLERANCE,
            gtol=_TOLERANCE,
        )
        return np.append(fixed, found.x)

    def _residuals(self, parameters: np.ndarray) -> np.ndarray:
        irreducible, log_scale, exponent = parameters
        found = irreducible + np.exp(log_scale - exponent * self.x)
        return np.log(found / self.losses) if self.of_logarithm else found - self.losses

    def _jacobian(self, parameters: np.ndarray) -> np.ndarray:
        irreducible, log_scale, exponent = parameters
        power = np.exp(log_scale - exponent * self.x)
        slopes = np.stack([np.ones_like(power), power, -self.x * power], axis=1)
        return slopes / (irreducible + power)[:, None] if self.of_logarithm else slopes
