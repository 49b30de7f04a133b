"""Forecasting a task in two steps: its soft metric as a power law of compute, and its hard metric as a sigmoid of the
soft one.

The first step uses the compute-optimal model of each budget, since only those lie on one curve. The second uses every
model, since the relation of the two metrics does not ask how a model was made. Method of the public Marin record, with
the law fitted by the code that fits losses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm, spearmanr

from marin_core.recipes import format_budget
from marin_core.scaling.bootstrap import Interval
from marin_core.scaling.laws import MIN_BUDGETS, LossLaw, fit_loss_law
from marin_core.scaling.sigmoid import Sigmoid, fit_sigmoid

MIN_MODELS = 5
# A sigmoid has two parameters; so many different soft metrics determine one and tell something of its error.
_MIN_COSTS = 3
# Chance of calling a task of no signal one that has some, over all its models together.
_SIGNIFICANCE = 0.025
RESAMPLES = 200


@dataclass(frozen=True)
class Scored:
    """A model on a task. `cost` is the soft metric with its sign such that less is better, `hard` a share of 1;
    `examples` that the scores are of. `flops` and `examples` are None where they are not known (external models)."""

    name: str
    flops: float | None
    cost: float
    hard: float
    cost_stderr: float | None = None
    examples: int | None = None


@dataclass(frozen=True)
class TaskForecast:
    """Both steps and their resamples. `problems` says why a step is missing; it is empty when there is a forecast.

    Intervals are for what will be measured: they have the noise of `examples` examples in them.
    """

    chance: float
    law: LossLaw | None
    sigmoid: Sigmoid | None
    problems: tuple[str, ...]
    resampled_laws: tuple[LossLaw, ...] = field(default=(), repr=False)
    resampled_sigmoids: tuple[Sigmoid, ...] = field(default=(), repr=False)
    # Standard normal draws, one for each resample; and what they are scaled with.
    draws: tuple[float, ...] = field(default=(), repr=False)
    cost_stderr: float = 0.0
    examples: int | None = None

    @property
    def status(self) -> str:
        """`forecast`, `soft only` (no second step) or `refused`."""
        if self.law and self.sigmoid:
            return "forecast"
        return "soft only" if self.law else "refused"

    def cost(self, flops: float) -> float | None:
        return self.law.loss(flops) if self.law else None

    def cost_interval(self, flops: float) -> Interval | None:
        if not self.law:
            return None
        laws = zip(self.resampled_laws, self.draws, strict=True)
        return Interval.of([law.loss(flops) + self.cost_stderr * draw for law, draw in laws])

    def hard(self, flops: float) -> float | None:
        return self.sigmoid.hard(self.law.loss(flops)) if self.law and self.sigmoid else None

    def hard_interval(self, flops: float) -> Interval | None:
        """The law and the sigmoid of each resample one after the other, within 0 and 1."""
        if not (self.law and self.sigmoid):
            return None
        pairs = zip(self.resampled_laws, self.resampled_sigmoids, strict=True)
        return self._measured([sigmoid.hard(law.loss(flops)) for law, sigmoid in pairs])

    def hard_interval_at(self, cost: float) -> Interval | None:
        """The second step alone, of a model whose soft metric is known."""
        return self._measured([s.hard(cost) for s in self.resampled_sigmoids]) if self.sigmoid else None

    def _measured(self, scores: Sequence[float]) -> Interval:
        share = np.asarray(scores)
        if self.examples:
            share = share + np.sqrt(share * (1 - share) / self.examples) * np.asarray(self.draws)
        return Interval.of(list(np.clip(share, 0, 1)))


def forecast_task(
    optimal: Sequence[Scored], models: Sequence[Scored], chance: float, resamples: int = RESAMPLES
) -> TaskForecast:
    """`optimal` has the compute-optimal model of each budget, `models` all that take part in the second step.

    Nothing is raised where the data tell too little: the forecast lacks that step and says why. Seeded: same input,
    same result.
    """
    optimal = sorted(optimal, key=lambda model: model.flops or 0.0)
    first, second = _no_law(optimal), _no_sigmoid(models, chance)
    law = None if first else fit_loss_law(*_points(optimal))
    costs, hards = [m.cost for m in models], [m.hard for m in models]
    sigmoid = None if second else fit_sigmoid(costs, hards, chance)
    generator = np.random.default_rng(0)
    examples = [m.examples for m in models if m.examples]
    return TaskForecast(
        chance=chance,
        law=law,
        sigmoid=sigmoid,
        problems=tuple(problem for problem in (first, second) if problem),
        resampled_laws=_resampled_laws(optimal, generator, resamples) if law else (),
        resampled_sigmoids=_resampled_sigmoids(models, sigmoid, generator, resamples) if sigmoid else (),
        draws=tuple(float(v) for v in generator.standard_normal(resamples)),
        cost_stderr=float(np.median([m.cost_stderr or 0.0 for m in optimal])) if optimal else 0.0,
        examples=int(np.median(examples)) if examples else None,
    )


def _points(optimal: Sequence[Scored]) -> tuple[list[float], list[float]]:
    return [float(m.flops or 0) for m in optimal], [m.cost for m in optimal]


def _no_law(optimal: Sequence[Scored]) -> str | None:
    budgets = {m.flops for m in optimal}
    if len(budgets) < MIN_BUDGETS:
        return f"compute-optimal models of {len(budgets)} budgets were evaluated, at least {MIN_BUDGETS} are needed"
    if len(budgets) == MIN_BUDGETS and not any(m.cost_stderr for m in optimal):
        return f"{MIN_BUDGETS} budgets without standard errors fit exactly and leave no interval; evaluate one more"
    if min(m.cost for m in optimal) <= 0:
        return "the soft metric is not of one sign, a power law needs one"
    if optimal[-1].cost >= optimal[0].cost:
        first, last = (format_budget(m.flops or 0) for m in (optimal[0], optimal[-1]))
        return f"the soft metric is no better at {last} FLOPs than at {first}: no trend to carry on"
    return None


def _no_sigmoid(models: Sequence[Scored], chance: float) -> str | None:
    if len(models) < MIN_MODELS:
        return f"{len(models)} models have both metrics, at least {MIN_MODELS} are needed"
    if len({m.cost for m in models}) < _MIN_COSTS:
        return f"the soft metric has fewer than {_MIN_COSTS} values: no curve through them"
    limit = float(norm.isf(_SIGNIFICANCE / len(models)))
    above = [m for m in models if m.hard - chance > limit * _noise_of_chance(m, chance)]
    if not above:
        best = max(models, key=lambda m: m.hard)
        needed = chance + limit * _noise_of_chance(best, chance)
        return f"no signal above chance ({chance:.3f}): the best score is {best.hard:.3f}, above {needed:.3f} is one"
    order = spearmanr([m.cost for m in models], [m.hard for m in models]).statistic
    if not order < 0:  # nan where a metric is the same for all
        return "the hard metric does not rise as the soft one improves"
    return None


def _noise_of_chance(model: Scored, chance: float) -> float:
    """Standard deviation of the score of a model that guesses."""
    return float(np.sqrt(chance * (1 - chance) / model.examples)) if model.examples else 0.0


def _resampled_laws(optimal: Sequence[Scored], generator: np.random.Generator, resamples: int) -> tuple[LossLaw, ...]:
    """Budgets drawn with replacement, each soft metric moved by its standard error."""
    laws: list[LossLaw] = []
    while len(laws) < resamples:
        drawn = [optimal[i] for i in sorted(generator.choice(len(optimal), size=len(optimal)))]
        if len({m.flops for m in drawn}) < MIN_BUDGETS:
            continue
        moved = {m.name: m.cost + (m.cost_stderr or 0.0) * generator.standard_normal() for m in optimal}
        costs = [max(moved[m.name], m.cost / 100) for m in drawn]
        laws.append(fit_loss_law([float(m.flops or 0) for m in drawn], costs))
    return tuple(laws)


def _resampled_sigmoids(
    models: Sequence[Scored], point: Sigmoid, generator: np.random.Generator, resamples: int
) -> tuple[Sigmoid, ...]:
    """Models drawn with replacement, as long as they are different enough for a slope."""
    sigmoids: list[Sigmoid] = []
    while len(sigmoids) < resamples:
        drawn = [models[i] for i in generator.choice(len(models), size=len(models))]
        if len({m.cost for m in drawn}) >= _MIN_COSTS:
            sigmoids.append(fit_sigmoid([m.cost for m in drawn], [m.hard for m in drawn], point.floor, start=point))
    return tuple(sigmoids)
