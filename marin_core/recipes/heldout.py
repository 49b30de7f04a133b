"""What a held-out run has of its own. The published values are data: `heldout.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.recipes.errors import RecipeError


@dataclass(frozen=True)
class HeldOutRun:
    """Where the held-out runs of one budget differ from what the recipe would choose; None or empty: they do not.

    Raises:
        RecipeError: a batch that is not positive, a negative or repeated seed, or a negative z-loss weight.
    """

    # Sequences a step, in place of the grid's batch. The optimizer's settings follow from it.
    batch_size: int | None = None
    # One run for each; where none is given, one with the profile's seed.
    seeds: tuple[int, ...] = ()
    # Weight of the z-loss, in place of the rule's; no unit.
    z_loss_weight: float | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise RecipeError(f"batch_size is {self.batch_size}; give at least 1 sequence")
        if len(set(self.seeds)) != len(self.seeds) or min(self.seeds, default=0) < 0:
            raise RecipeError(f"seeds are {', '.join(map(str, self.seeds))}; give different ones, from 0")
        if self.z_loss_weight is not None and not self.z_loss_weight >= 0:
            raise RecipeError(f"z_loss_weight is {self.z_loss_weight:g}; give 0 or more")

    def to_json(self) -> dict[str, Any]:
        """What is said; `from_json` restores it."""
        said = {"batch_size": self.batch_size, "seeds": list(self.seeds) or None, "z_loss_weight": self.z_loss_weight}
        return {key: value for key, value in said.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "HeldOutRun":
        return cls(**{**data, "seeds": tuple(data.get("seeds", ()))})


def published_heldout_runs() -> dict[float, HeldOutRun]:
    """The runs of `heldout.toml` by budget in FLOPs, budgets ascending."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {float(budget): HeldOutRun.from_json(run) for budget, run in table.items()}
