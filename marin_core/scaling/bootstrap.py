"""Intervals by resampling: how far a forecast moves when runs and budgets are drawn again."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from marin_core.scaling.isoflop import fit_isoflop
from marin_core.scaling.laws import MIN_BUDGETS, LossLaw, fit_loss_law

RESAMPLES = 500
_PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        low, high = np.percentile(values, _PERCENTILES)
        return cls(float(low), float(high))


@dataclass(frozen=True)
class Curve:
    """The finished runs of one budget, as `fit_isoflop` takes them."""

    flops: float
    tokens: Sequence[float]
    params: Sequence[float]
    losses: Sequence[float]


@dataclass(frozen=True)
class Bootstrap:
    """Resampled laws, and for each the noise of one further run (0 where single runs are not known)."""

    laws: tuple[LossLaw, ...]
    noise: tuple[float, ...]

    def loss(self, flops: float) -> Interval:
        """Interval for the loss of one run at a budget."""
        return Interval.of([law.loss(flops) + e for law, e in zip(self.laws, self.noise, strict=True)])

    def table(self) -> pl.DataFrame:
        """One row per resample; `from_table` restores it."""
        return pl.DataFrame([dataclasses.asdict(law) for law in self.laws]).with_columns(noise=pl.Series(self.noise))

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> "Bootstrap":
        return cls(tuple(LossLaw(**row) for row in table.drop("noise").to_dicts()), tuple(table["noise"]))

    def irreducible(self) -> Interval:
        return Interval.of([law.irreducible for law in self.laws])

    def exponent(self) -> Interval:
        return Interval.of([law.exponent for law in self.laws])


def bootstrap(optima: Mapping[float, float], curves: Sequence[Curve] = (), resamples: int = RESAMPLES) -> Bootstrap:
    """Fit the loss law again on resamples of `optima` (budget -> optimal loss). Seeded: same input, same result.

    Each resample draws budgets with replacement. Where the runs of a budget are known (`curves`), its optimum is
    first fitted again from its parabola plus residuals drawn again.

    Raises:
        ScalingError: too few budgets for a loss law.
    """
    generator = np.random.default_rng(0)
    known = sorted(optima)
    point = fit_loss_law(known, [optima[c] for c in known])
    refits = {curve.flops: _Refit(curve, optima[curve.flops]) for curve in curves if curve.flops in optima}
    pooled = np.concatenate([refit.residuals for refit in refits.values()]) if refits else np.zeros(1)
    laws: list[LossLaw] = []
    while len(laws) < resamples:
        drawn = [float(c) for c in generator.choice(known, size=len(known))]
        if len(set(drawn)) < MIN_BUDGETS:
            continue
        again = {c: refits[c].optimum(generator) if c in refits else optima[c] for c in known}
        laws.append(fit_loss_law(drawn, [again[c] for c in drawn], start=point))
    return Bootstrap(tuple(laws), tuple(float(e) for e in generator.choice(pooled, size=len(laws))))


class _Refit:
    """One budget's parabola and its residuals, widened for the three parameters that the parabola took."""

    def __init__(self, curve: Curve, optimum: float):
        self._curve, self._optimum = curve, optimum
        fit = fit_isoflop(curve.flops, curve.tokens, curve.params, curve.losses)
        self._fitted = np.array([fit.loss(t) for t in curve.tokens])
        raw = np.asarray(curve.losses) - self._fitted
        self.residuals = raw * np.sqrt(len(raw) / max(1, len(raw) - 3))

    def optimum(self, generator: np.random.Generator) -> float:
        losses = self._fitted + generator.choice(self.residuals, size=len(self._fitted))
        curve = self._curve
        again = fit_isoflop(curve.flops, curve.tokens, curve.params, list(losses)).optimal_loss
        return self._optimum if again is None else again
