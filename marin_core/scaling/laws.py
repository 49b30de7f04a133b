"""The two laws fitted through IsoFLOP minima: compute-optimal tokens and the loss that they reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import least_squares

from marin_core.recipes import TokenLaw
from marin_core.scaling.errors import ScalingError

MIN_BUDGETS = 3
_STARTING_SHARES = (0.0, 0.3, 0.6, 0.8, 0.95)
_STARTING_EXPONENTS = (0.03, 0.1, 0.3)
# Compute is rescaled by its geometric mean, which keeps the coefficient of order one whatever the budgets are.
_MAX_EXPONENT = 2.0


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
    flops: Sequence[float], losses: Sequence[float], *, with_offset: bool = True, start: LossLaw | None = None
) -> LossLaw:
    """Least squares on log loss from several starts, the best kept. `with_offset=False` forces E = 0.

    `start` is a law that is known to be close (a resample's point fit) and replaces the several starts.

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
    x = log_c - log_c.mean()
    y = np.log(np.asarray(losses, dtype=np.float64))
    floor = float(np.min(losses))

    def residuals(parameters: np.ndarray) -> np.ndarray:
        irreducible, log_scale, exponent = parameters
        return np.log(irreducible + np.exp(log_scale - exponent * x)) - y

    def jacobian(parameters: np.ndarray) -> np.ndarray:
        irreducible, log_scale, exponent = parameters
        power = np.exp(log_scale - exponent * x)
        return np.stack([np.ones_like(x), power, -x * power], axis=1) / (irreducible + power)[:, None]

    ceiling = floor * (1 - 1e-6) if with_offset else 1e-12
    bounds = ([0.0, -np.inf, 1e-4], [ceiling, np.inf, _MAX_EXPONENT])
    if start:
        log_scale = np.log(start.scale) + start.exponent * (np.log(start.reference) - log_c.mean())
        starts = [(min(start.irreducible, ceiling), log_scale, start.exponent)]
    else:
        shares = _STARTING_SHARES if with_offset else (0.0,)
        starts = [
            (min(share * floor, ceiling), np.log(np.exp(y.mean()) - share * floor), exponent)
            for share in shares
            for exponent in _STARTING_EXPONENTS
        ]
    fits = [least_squares(residuals, s, jac=cast("Any", jacobian), bounds=bounds, x_scale="jac") for s in starts]
    best = min(fits, key=lambda fit: fit.cost)
    irreducible, log_scale, exponent = (float(v) for v in best.x)
    return LossLaw(irreducible if with_offset else 0.0, float(np.exp(log_scale)), exponent, reference)
