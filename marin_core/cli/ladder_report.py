"""What is wrong with a ladder, before anything of it is trained. Reads a profile; a token law, where there is one."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from marin_core.cli.token_laws import KnownLaw
from marin_core.profile import Scale
from marin_core.recipes import Candidate, RecipeError, format_budget
from marin_core.recipes.limits import Limit, Place, limits_met, place_of_optimum

# A parabola through three runs has none left over to tell how good it is.
LEAST_CELLS = 4
# A loss law has three parameters.
LEAST_BUDGETS = 3
# Steps at one width that differ by more than this share, for one budget and another, come from batches rounded
# differently: where batches double with budgets, they are equal but for the rounding of steps.
_SAME_STEPS = 0.05


@dataclass(frozen=True)
class Finding:
    """A `problem` makes fits or runs impossible or wrong; a `warning` is to be looked at. `budget` in FLOPs, None where
    it is about the ladder as a whole."""

    kind: Literal["problem", "warning"]
    budget: float | None
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "budget": self.budget, "text": self.text}


@dataclass(frozen=True)
class BudgetReport:
    """A fit budget: its grid, the limits that its runs meet by partition key, and where the law's optimum lies."""

    flops: float
    cells: tuple[Candidate, ...]
    limits: dict[str, tuple[Limit, ...]]
    best_tokens: float | None
    optimum: Place | None


@dataclass(frozen=True)
class LadderReport:
    """A ladder: its budgets ascending, and what was found. `law` is None where neither the store nor the recipe has
    one."""

    name: str
    scale: Scale
    law: KnownLaw | None

    @cached_property
    def budgets(self) -> tuple[BudgetReport, ...]:
        return tuple(self._budget(flops) for flops in sorted(set(self.scale.fit_budgets)))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Problems first."""
        found = [*self._of_budgets(), *self._of_heldout(), *self._of_vocabulary(), *self._of_rounding()]
        return tuple(sorted(found, key=lambda finding: finding.kind))

    @property
    def problems(self) -> int:
        return sum(finding.kind == "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": self.name,
            "recipe": self.scale.recipe.name,
            "version": self.scale.recipe.version,
            "token_law": self.law.to_json() if self.law else None,
            "budgets": [_budget_json(one) for one in self.budgets],
            "heldout_budgets": sorted(self.scale.heldout_budgets),
            "findings": [finding.to_json() for finding in self.findings],
            "problems": self.problems,
        }

    def _budget(self, flops: float) -> BudgetReport:
        recipe = self.scale.recipe
        try:
            cells = tuple(recipe.candidates(flops))
        except RecipeError:
            return BudgetReport(flops, (), {}, None, None)
        limits = {c.key: met for c in cells if (met := limits_met(recipe, c))}
        if self.law is None:
            return BudgetReport(flops, cells, limits, None, None)
        law = self.law.law
        return BudgetReport(flops, cells, limits, law.tokens(flops), place_of_optimum(law, cells))

    def _of_budgets(self) -> Iterator[Finding]:
        if len(self.budgets) < LEAST_BUDGETS:
            yield Finding(
                "problem",
                None,
                f"{len(self.budgets)} fit budgets are too few for a loss law, which takes {LEAST_BUDGETS}; add to "
                "fit_budgets",
            )
        for one in self.budgets:
            if len(one.cells) < LEAST_CELLS:
                yield Finding(
                    "problem",
                    one.flops,
                    f"{len(one.cells)} cells are too few for a curve, which takes {LEAST_CELLS}; widen the recipe's "
                    "widths, batches or limits, or choose another budget",
                )
            yield from self._of_optimum(one)
            for limit, cells in _by_limit(one).items():
                yield Finding("warning", one.flops, f"at the {limit}: {', '.join(cells)}")

    def _of_optimum(self, one: BudgetReport) -> Iterator[Finding]:
        if one.optimum is None or one.optimum == "inside" or one.best_tokens is None:
            return
        tokens = sorted(c.tokens for c in one.cells)
        where = f"the law's optimum of {one.best_tokens:.3g} tokens"
        grid = f"the grid's {tokens[0]:.3g} to {tokens[-1]:.3g}"
        if one.optimum == "outside":
            text = f"{where} is outside {grid}: the minimum would be extrapolated; let the recipe reach further"
            yield Finding("problem", one.flops, text)
        else:
            yield Finding("warning", one.flops, f"{where} is at the edge of {grid}, within the last two runs")

    def _of_heldout(self) -> Iterator[Finding]:
        recipe, largest = self.scale.recipe, max(self.scale.fit_budgets)
        for flops in sorted(self.scale.heldout_budgets):
            if flops <= largest:
                yield Finding(
                    "problem",
                    flops,
                    f"held out, and not above the largest fit budget, {format_budget(largest)}: nothing would be "
                    "extrapolated; hold out a larger budget",
                )
            try:
                recipe.candidates(flops)
            except RecipeError as error:
                yield Finding("problem", flops, f"held out: {error}")

    def _of_vocabulary(self) -> Iterator[Finding]:
        recipe, tokenizer = self.scale.recipe, self.scale.tokenizer
        if recipe.vocab_size != tokenizer.vocab_size:
            yield Finding(
                "problem",
                None,
                f"the recipe counts with a vocabulary of {recipe.vocab_size:,}, tokenizer {tokenizer.name} has "
                f"{tokenizer.vocab_size:,}; make vocab_size the same in [scale.recipe] and [scale.tokenizer]",
            )

    def _of_rounding(self) -> Iterator[Finding]:
        """Budgets next to each other whose runs of one width have other numbers of steps."""
        for low, high in itertools.pairwise(self.budgets):
            steps = {c.hidden_dim: c.steps for c in low.cells}
            shared = [(c, steps[c.hidden_dim]) for c in high.cells if c.hidden_dim in steps]
            other = [(c, before) for c, before in shared if abs(c.steps / before - 1) > _SAME_STEPS]
            if other:
                cell, before = other[0]
                yield Finding(
                    "warning",
                    high.flops,
                    f"batches round differently than at {format_budget(low.flops)}: at width {cell.hidden_dim} "
                    f"{cell.steps:,} steps after {before:,}, and {len(other)} of {len(shared)} widths differ; budgets "
                    "a power of two apart have the same steps",
                )


def _by_limit(one: BudgetReport) -> dict[str, list[str]]:
    """The partition keys of the runs that meet a limit, by the limit and its value."""
    found: dict[str, list[str]] = {}
    for key, limits in one.limits.items():
        for limit in limits:
            found.setdefault(f"{limit.name} of {limit.limit:g}", []).append(key)
    return found


def _budget_json(one: BudgetReport) -> dict[str, Any]:
    return {
        "flops": one.flops,
        "cells": [c.key for c in one.cells],
        "at_limits": {key: [limit.name for limit in limits] for key, limits in one.limits.items()},
        "optimal_tokens": one.best_tokens,
        "optimum": one.optimum,
    }
