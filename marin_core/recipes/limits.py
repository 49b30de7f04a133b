"""Which limits of its recipe a run meets, and where a token law's optimum lies in a grid. Pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from marin_core.recipes.candidate import Candidate, TokenLaw
from marin_core.recipes.recipe import ScalingRecipe

# A value counts as at its limit from this share of the limit on.
_NEAR = 0.97
# How many runs from either end of a grid are its edge.
_EDGE = 2

type Place = Literal["inside", "edge", "outside"]


@dataclass(frozen=True)
class Limit:
    """A limit that a run meets, or comes within 3 % of: what it is, the run's value, the limit."""

    name: str
    value: float
    limit: float


def limits_met(recipe: ScalingRecipe, candidate: Candidate) -> tuple[Limit, ...]:
    """The limits that shaped a run, or that the next larger one would meet.

    Rates at their caps and beta2 at its floor mean that the transfer rule no longer says what the run does; batches at
    their limits, that its number of steps is not what the recipe aims at; the rest, that the grid ends here.
    """
    return tuple(_met(recipe, candidate))


def _met(recipe: ScalingRecipe, candidate: Candidate) -> Iterator[Limit]:
    rule, settings = recipe.hparams, candidate.optimizer
    params = recipe.params_without_qk_norm(candidate.hidden_dim)
    upper = [
        Limit("learning-rate cap", settings.learning_rate, rule.learning_rate_cap),
        Limit("Adam-rate cap", settings.adam_lr, rule.learning_rate_cap),
        Limit("tokens-per-parameter limit", candidate.tokens / params, recipe.max_tokens_per_param),
        Limit("parameter limit", params, recipe.max_params_of(candidate.flops)),
    ]
    yield from (one for one in upper if one.value >= _NEAR * one.limit)
    # Of a decay it is the distance from 1 that means something.
    if 1 - settings.beta2 >= _NEAR * (1 - rule.beta2_min):
        yield Limit("beta2 floor", settings.beta2, rule.beta2_min)
    if candidate.batch_size <= recipe.min_batch_size:
        yield Limit("smallest batch", candidate.batch_size, recipe.min_batch_size)
    if candidate.batch_size >= recipe.max_batch_size:
        yield Limit("largest batch", candidate.batch_size, recipe.max_batch_size)


def place_of_optimum(law: TokenLaw, candidates: Sequence[Candidate]) -> Place:
    """Where a budget's optimal tokens lie among those of its runs: `edge` is up to the second run from either end."""
    tokens = sorted(candidate.tokens for candidate in candidates)
    best = law.tokens(candidates[0].flops)
    if not tokens[0] <= best <= tokens[-1]:
        return "outside"
    inner = tokens[_EDGE - 1 : len(tokens) - _EDGE + 1]
    return "inside" if inner and inner[0] < best < inner[-1] else "edge"
