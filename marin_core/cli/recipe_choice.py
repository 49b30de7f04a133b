"""A budget's run that a token law recommends: which candidate, by which law, and as which plans."""

from dataclasses import dataclass
from functools import cached_property

from marin_core.cli.token_laws import KnownLaw
from marin_core.recipes import Candidate, ScalingRecipe, TrainPlan


@dataclass(frozen=True)
class Choice:
    """The candidate of `recipe` that `law` recommends for a budget of `flops`, trained once for every seed."""

    recipe: ScalingRecipe
    flops: float
    law: KnownLaw
    seeds: tuple[int, ...]
    eval_sequences: int

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The budget's grid, fewest tokens first."""
        return sorted(self.recipe.candidates(self.flops), key=lambda c: c.tokens)

    @property
    def best_tokens(self) -> float:
        """D*: the tokens that the law calls optimal."""
        return self.law.law.tokens(self.flops)

    @cached_property
    def run(self) -> Candidate:
        """The recommended run as held-out runs of its budget are trained."""
        return self.recipe.optimal(self.flops, self.law.law)

    @cached_property
    def cell(self) -> Candidate:
        """The same run as the grid has it."""
        return next(c for c in self.candidates if c.hidden_dim == self.run.hidden_dim)

    @property
    def has_own_batch(self) -> bool:
        """Whether held-out runs of the budget have a batch of their own, in place of the grid's."""
        own = self.recipe.heldout_runs.get(self.flops)
        return own is not None and own.batch_size is not None

    @property
    def plans(self) -> list[TrainPlan]:
        """One plan for each seed."""
        return [
            TrainPlan.of(self.recipe, self.run, eval_sequences=self.eval_sequences, seed=seed) for seed in self.seeds
        ]
