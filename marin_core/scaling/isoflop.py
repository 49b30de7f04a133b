"""IsoFLOP curves: at one budget, loss as a parabola in log10 tokens, and the minimum it recommends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marin_core.scaling.errors import ScalingError

MIN_RUNS = 4
# Residuals well above this (nats per token) are outliers; a larger scale would make the loss plain least squares.
OUTLIER_SCALE = 0.01
_REWEIGHTINGS = 30


@dataclass(frozen=True)
class IsoFlop:
    """One budget's curve.

    loss(tokens) = c0 + c1*x + c2*x^2 with x = log10(tokens) - center. `problem` says why the budget is flagged and
    left out of the laws; None when its minimum can be used. `optimal_params` interpolates the grid's parameters
    at the minimum, log-linearly.
    """

    flops: float
    center: float
    coefficients: tuple[float, float, float]
    optimal_tokens: float | None
    optimal_params: float | None
    optimal_loss: float | None
    runs: int
    problem: str | None

    def loss(self, tokens: float) -> float:
        x = np.log10(tokens) - self.center
        c0, c1, c2 = self.coefficients
        return float(c0 + c1 * x + c2 * x * x)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "coefficients": list(self.coefficients)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "IsoFlop":
        return cls(**{**data, "coefficients": tuple(data["coefficients"])})


def fit_isoflop(flops: float, tokens: Sequence[float], params: Sequence[float], losses: Sequence[float]) -> IsoFlop:
    """Fit the curve of one budget from its finished runs (`losses` in nats per token, same order as `tokens`).

    A Huber fit: an outlier inside the grid hardly moves the minimum; one at an end has the leverage to. The budget is
    flagged when it has fewer than 4 runs or 3 token counts, when the parabola is not convex, or when its minimum is
    not inside the grid.

    Raises:
        ScalingError: a loss is not finite.
    """
    x = np.log10(np.asarray(tokens, dtype=np.float64))
    y = np.asarray(losses, dtype=np.float64)
    center = float(x.mean()) if len(x) else 0.0

    def result(coefficients: tuple[float, float, float], problem: str | None) -> IsoFlop:
        if problem:
            return IsoFlop(flops, center, coefficients, None, None, None, len(x), problem)
        c0, c1, c2 = coefficients
        at = center - c1 / (2 * c2)
        order = np.argsort(x)
        log_params = np.interp(at, x[order], np.log10(np.asarray(params, dtype=np.float64))[order])
        best = c0 - c1 * c1 / (4 * c2)
        return IsoFlop(flops, center, coefficients, float(10**at), float(10**log_params), float(best), len(x), None)

    if not np.isfinite(y).all():
        raise ScalingError(f"budget {flops:g}: a loss is no number; leave diverged runs out")
    if len(x) < MIN_RUNS:
        return result((0.0, 0.0, 0.0), f"{len(x)} finished runs, at least {MIN_RUNS} are needed")
    if len(set(x)) < 3:
        return result((0.0, 0.0, 0.0), f"runs at {len(set(x))} token counts, at least 3 are needed")
    coefficients = _robust_parabola(x - center, y)
    _, c1, c2 = coefficients
    if c2 <= 0:
        return result(coefficients, "the parabola is not convex: no minimum")
    minimum = center - c1 / (2 * c2)
    if not x.min() < minimum < x.max():
        edge = "smallest" if minimum <= x.min() else "largest"
        return result(
            coefficients,
            f"the minimum, {10.0 ** min(minimum, 300):.3g} tokens, is beyond the run with the {edge} token count",
        )
    return result(coefficients, None)


def _robust_parabola(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Huber regression by iteratively reweighted least squares."""
    basis = np.stack([np.ones_like(x), x, x * x], axis=1)
    weights = np.ones_like(y)
    coefficients = np.zeros(3)
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(basis * root[:, None], y * root, rcond=None)[0]
        residuals = np.abs(y - basis @ coefficients)
        before, weights = weights, OUTLIER_SCALE / np.maximum(residuals, OUTLIER_SCALE)
        if np.allclose(weights, before, rtol=1e-12, atol=0):
            break
    return float(coefficients[0]), float(coefficients[1]), float(coefficients[2])
