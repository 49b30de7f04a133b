"""Names of public runs, read: which recipe, which version, which cell. What a name does not say stays None.

Two traps. A sweep's name rounds its budget to one digit, so that 1.8e19 and 2e19 are both `2e+19`. And the number in
the name of a held-out run (`…-optimal-1e+21-v5-…`) counts launches; it is not the version of the recipe, which is v6
whatever the number says (launch script of the public suite: label `adamh_scaling_v6`).
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from marin_core.recipes.candidate import Candidate, format_budget
from marin_core.recipes.delphi import DELPHI, DELPHI_V5, FIT_BUDGETS, HELDOUT_BUDGETS
from marin_core.recipes.errors import RecipeError
from marin_core.recipes.recipe import ScalingRecipe
from marin_core.recipes.versions import KnownVersion

# What a launch appends to a name: a hash of its configuration.
_HASH = r"(?:-(?P<hash>[0-9a-f]{6}))?"
_SWEEP = re.compile(rf"isoflop-(?P<budget>\d+e[+-]\d+)-d(?P<d>\d+)-L(?P<L>\d+)-B(?P<B>\d+)-(?P<version>\w+?){_HASH}")
# The first launch said `adamh-v6-scaling-ladder`.
_HELD_OUT = re.compile(
    rf"adamh-(?:v6-)?scaling-ladder-nemotron-optimal-(?P<budget>\d+e[+-]\d+)"
    rf"(?:-(?P<launch>v\d+))?(?:-seed(?P<seed>\d+))?{_HASH}"
)
# The launch that the public script is of; its runs have the published batches. Others had smaller ones.
_PUBLISHED_LAUNCH = "v5"
_RECIPES: dict[str, ScalingRecipe] = {recipe.version: recipe for recipe in (DELPHI, DELPHI_V5)}


@dataclass(frozen=True)
class RunName:
    """What a run's name says. `flops` is the budget in full; `batch_size` is in sequences.

    Of a held-out run `launch` is the number in its name, and `batch_size` is None for launches whose batches are not
    public. `config_hash` are the six hex digits that a launch appends.
    """

    kind: Literal["isoflop", "held-out"]
    recipe: str
    version: KnownVersion
    flops: float
    hidden_dim: int
    num_layers: int
    batch_size: int | None
    seed: int | None = None
    launch: str | None = None
    config_hash: str | None = None

    @property
    def key(self) -> str:
        """The partition key of its cell, for instance `1.8e19-d1408`."""
        return Candidate.key_of(self.flops, self.hidden_dim)


def parse_run_name(name: str, budgets: Iterable[float] = (*FIT_BUDGETS, *HELDOUT_BUDGETS)) -> RunName:
    """What the name of a run of the public suite, or of its predecessor, says.

    A rounded budget is looked for among `budgets` (FLOPs) by width, depth and batch; where none of them is written so,
    it is taken as it stands.

    Raises:
        RecipeError: not such a name, or one of a version, a budget or a cell that there is not.
    """
    if match := _SWEEP.fullmatch(name):
        return _sweep_run(name, match, budgets)
    if match := _HELD_OUT.fullmatch(name):
        return _heldout_run(name, match)
    raise RecipeError(
        f"{name!r} is no run name of the public suite; give one like isoflop-3e+18-d1024-L11-B8-adamh_scaling_v6 or "
        "adamh-scaling-ladder-nemotron-optimal-1e+21-v5-019021"
    )


def _sweep_run(name: str, match: re.Match[str], budgets: Iterable[float]) -> RunName:
    if match["version"] not in _RECIPES:
        known = ", ".join(_RECIPES)
        raise RecipeError(f"run name {name!r} has the version {match['version']!r}; names of {known} can be read")
    recipe = _RECIPES[match["version"]]
    width, layers, batch_size = int(match["d"]), int(match["L"]), int(match["B"])
    written_so = [flops for flops in budgets if f"{flops:.0e}" == match["budget"]] or [_budget(name, match)]
    having = [flops for flops in written_so if (width, layers, batch_size) in _cells(recipe, flops)]
    if len(having) != 1:
        tried = " and ".join(map(format_budget, having or written_so))
        found = "more than one budget has" if having else "the recipe has no"
        raise RecipeError(
            f"run name {name!r}: {found} cell of width {width}, {layers} layers and batch {batch_size} at {tried} "
            "FLOPs; name the budgets that may be meant"
        )
    return RunName(
        kind="isoflop",
        recipe=recipe.name,
        version=_known(recipe),
        flops=having[0],
        hidden_dim=width,
        num_layers=layers,
        batch_size=batch_size,
        config_hash=match["hash"],
    )


def _heldout_run(name: str, match: re.Match[str]) -> RunName:
    flops = _budget(name, match)
    if flops not in DELPHI.heldout_runs:
        held_out = ", ".join(format_budget(budget) for budget in DELPHI.heldout_runs)
        raise RecipeError(f"run name {name!r} is of {format_budget(flops)} FLOPs; held out were {held_out}")
    run = DELPHI.optimal(flops)
    return RunName(
        kind="held-out",
        recipe=DELPHI.name,
        version=_known(DELPHI),
        flops=flops,
        hidden_dim=run.hidden_dim,
        num_layers=run.num_layers,
        batch_size=run.batch_size if match["launch"] == _PUBLISHED_LAUNCH else None,
        seed=int(match["seed"] or 0),
        launch=match["launch"],
        config_hash=match["hash"],
    )


def _budget(name: str, match: re.Match[str]) -> float:
    flops = float(match["budget"])
    if not (math.isfinite(flops) and flops > 0):
        raise RecipeError(f"run name {name!r} has the budget {match['budget']}, no number of FLOPs like 3e+18")
    return flops


def _cells(recipe: ScalingRecipe, flops: float) -> set[tuple[int, int, int]]:
    """Width, depth and batch of a budget's grid; empty where it admits no run."""
    try:
        return {(c.hidden_dim, c.num_layers, c.batch_size) for c in recipe.candidates(flops)}
    except RecipeError:
        return set()


def _known(recipe: ScalingRecipe) -> KnownVersion:
    assert recipe.version in get_args(KnownVersion)
    return cast("KnownVersion", recipe.version)
