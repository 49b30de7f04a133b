"""Intervals by resampling: how far a forecast moves when runs and budgets are drawn again."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from marin_core.recipes import TokenLaw
from marin_core.scaling.isoflop import fit_isoflop
from marin_core.scaling.laws import MIN_BUDGETS, LossLaw, fit_loss_law, fit_token_law

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
    """The finished runs of one budget, as `fit_isoflop` takes them, and their names."""

    flops: float
    tokens: Sequence[float]
    params: Sequence[float]
    losses: Sequence[float]
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Bootstrap:
    """Resampled laws, and for each the noise of one further run (0 where single runs are not known).

    `token_laws` are those of the same resamples; empty where optimal tokens are not known.
    """

    laws: tuple[LossLaw, ...]
    noise: tuple[float, ...]
    token_laws: tuple[TokenLaw, ...] = ()

    def loss(self, flops: float) -> Interval:
        """Interval for the loss of one run at a budget."""
        return Interval.of([law.loss(flops) + e for law, e in zip(self.laws, self.noise, strict=True)])

    def tokens(self, flops: float) -> Interval:
        """Interval for the compute-optimal tokens of a budget."""
        return Interval.of([law.tokens(flops) for law in self.token_laws])

    def table(self) -> pl.DataFrame:
        """One row per resample; `from_table` restores it."""
        laws = pl.DataFrame([dataclasses.asdict(law) for law in self.laws]).with_columns(noise=pl.Series(self.noise))
        tokens = pl.DataFrame([dataclasses.asdict(law) for law in self.token_laws])
        return laws.hstack(tokens.rename("token_{}".format)) if len(tokens) else laws

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> "Bootstrap":
        rows = table.to_dicts()
        names = ["token_coefficient", "token_exponent"]
        token_laws = [TokenLaw(*(row.pop(name) for name in names)) for row in rows if names[0] in row]
        noise = [row.pop("noise") for row in rows]
        return cls(tuple(LossLaw(**row) for row in rows), tuple(noise), tuple(token_laws))

    def irreducible(self) -> Interval:
        return Interval.of([law.irreducible for law in self.laws])

    def exponent(self) -> Interval:
        return Interval.of([law.exponent for law in self.laws])

    def token_exponent(self) -> Interval:
        return Interval.of([law.exponent for law in self.token_laws])


def bootstrap(
    optima: Mapping[float, float],
    curves: Sequence[Curve] = (),
    resamples: int = RESAMPLES,
    tokens: Mapping[float, float] | None = None,
) -> Bootstrap:
    """Fit the laws again on resamples of `optima` (budget -> optimal loss) and, where given, `tokens` (budget ->
    optimal tokens). Seeded: same input, same result.

    Each resample draws budgets with replacement. Where the runs of a budget are known (`curves`), its minimum is
    first fitted again from its parabola plus residuals drawn again.

    Raises:
        ScalingError: too few budgets for a loss law.
    """
    generator = np.random.default_rng(0)
    known = sorted(optima)
    fit_loss_law(known, [optima[c] for c in known])  # refuses what no resample could be fitted to
    refits = {curve.flops: _Refit(curve) for curve in curves if curve.flops in optima}
    pooled = np.concatenate([refit.residuals for refit in refits.values()]) if refits else np.zeros(1)
    laws: list[LossLaw] = []
    token_laws: list[TokenLaw] = []
    while len(laws) < resamples:
        drawn = [float(c) for c in generator.choice(known, size=len(known))]
        if len(set(drawn)) < MIN_BUDGETS:
            continue
        again = {c: refits[c].minimum(generator) if c in refits else None for c in known}
        losses = {c: minimum[1] if (minimum := again[c]) else optima[c] for c in known}
        laws.append(fit_loss_law(drawn, [losses[c] for c in drawn]))
        if tokens:
            optimal = {c: minimum[0] if (minimum := again[c]) else tokens[c] for c in known}
            token_laws.append(fit_token_law(drawn, [optimal[c] for c in drawn]))
    noise = generator.choice(pooled, size=len(laws))
    return Bootstrap(tuple(laws), tuple(float(e) for e in noise), tuple(token_laws))


class _Refit:
    """One budget's parabola and its residuals, widened for the three parameters that the parabola took."""

    def __init__(self, curve: Curve):
        self._curve = curve
        fit = fit_isoflop(curve.flops, curve.tokens, curve.params, curve.losses)
        self._fitted = np.array([fit.loss(t) for t in curve.tokens])
        raw = np.asarray(curve.losses) - self._fitted
        self.residuals = raw * np.sqrt(len(raw) / max(1, len(raw) - 3))

    def minimum(self, generator: np.random.Generator) -> tuple[float, float] | None:
        """(tokens, loss) of a resample; None where it has no usable minimum, and the curve's own holds."""
        losses = self._fitted + generator.choice(self.residuals, size=len(self._fitted))
        curve = self._curve
        again = fit_isoflop(curve.flops, curve.tokens, curve.params, list(losses))
        if again.optimal_tokens is None or again.optimal_loss is None:
            return None
        return again.optimal_tokens, again.optimal_loss
