"""Runs that their budget's curve does not explain. They are named, not dropped: the fits are robust to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marin_core.scaling.bootstrap import Curve
from marin_core.scaling.isoflop import OUTLIER_SCALE, IsoFlop

# Of a normal residual, estimated from the median absolute one. So many deviations name nearly every run that is off by
# ten, and in one suite of ten a run that is not.
_DEVIATIONS = 4.0
_MAD_TO_DEVIATION = 1.4826
# A robust parabola passes through about as many of its runs as it has parameters; those say nothing of the noise.
_PARAMETERS = 3


@dataclass(frozen=True)
class Outlier:
    """A run whose loss lies `residual` nats per token above its budget's curve (below, if negative); up to `limit` is
    usual in this suite."""

    name: str
    flops: float
    residual: float
    limit: float


def find_outliers(curves: Sequence[Curve], fits: Sequence[IsoFlop]) -> list[Outlier]:
    """Runs with a residual beyond four deviations of all runs' residuals, and beyond the scale on which the fits
    themselves take a run for an outlier. `fits` are those of `curves`, in the same order; budgets that have no curve
    tell nothing."""
    pairs = [(curve, fit) for curve, fit in zip(curves, fits, strict=True) if any(fit.coefficients)]
    found = [(curve, np.array(curve.losses) - [fit.loss(t) for t in curve.tokens]) for curve, fit in pairs]
    if not found:
        return []
    telling = np.concatenate([np.sort(np.abs(residuals))[_PARAMETERS:] for _, residuals in found])
    limit = max(OUTLIER_SCALE, _DEVIATIONS * _MAD_TO_DEVIATION * float(np.median(telling)))
    return [
        Outlier(name, curve.flops, float(residual), limit)
        for curve, residuals in found
        for name, residual in zip(curve.names, residuals, strict=True)
        if abs(residual) > limit
    ]
