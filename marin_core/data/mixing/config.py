"""What a mixture is to be: weights by stage, and how its sequences are shuffled."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin_core.errors import MarinError

Shuffle = Literal["full", "block"]
WeightUnit = Literal["tokens", "bytes", "documents"]
UNITS: tuple[WeightUnit, ...] = ("tokens", "bytes", "documents")
MAX_BLOCK_SIZE = 2**16 - 1


@dataclass(frozen=True)
class WeightStage:
    """Weights from training sequence `start` on; only their ratios count."""

    start: int
    weights: Mapping[str, float]


@dataclass(frozen=True)
class MixtureConfig:
    """What a mixture is to be.

    Shares hold in every block of `block_size` sequences. `weighted_by` says what a weight is a share of: a share of the
    tokens (as in Levanter), of the UTF-8 bytes or of the documents that training reads. `shuffle` is `full`, or `block`
    to read whole runs of neighbouring sequences from an object store. With `simulated_target_tokens` a run of T tokens
    reads only the T / target part of every component, again and again, so that a small run repeats its data as
    often as the target run would.
    """

    name: str
    block_size: int
    stages: tuple[WeightStage, ...]
    weighted_by: WeightUnit = "tokens"
    shuffle: Shuffle = "full"
    simulated_target_tokens: float | None = None

    @classmethod
    def from_profile(cls, data: Mapping[str, Any]) -> "MixtureConfig":
        """`weights = {…}`, or `stages = [{ start = 0, weights = {…} }, …]`.

        Raises:
            MarinError: a field's value makes no sense.
            TypeError: unknown or missing fields.
        """
        fields = dict(data)
        if ("weights" in fields) == ("stages" in fields):
            raise MarinError("mixture: give either weights or stages")
        stages = fields.pop("stages", None) or [{"start": 0, "weights": fields.pop("weights")}]
        config = cls(**fields, stages=tuple(WeightStage(**stage) for stage in stages))
        config.check()
        return config

    @property
    def components(self) -> list[str]:
        return sorted({name for stage in self.stages for name in stage.weights})

    def check(self) -> None:
        """Raises MarinError for whatever can be told before any data exists."""
        if self.weighted_by not in UNITS:
            raise MarinError(f"mixture: weighted_by is {self.weighted_by!r}; there are {', '.join(UNITS)}")
        if self.shuffle not in ("full", "block"):
            raise MarinError(f"mixture: shuffle is {self.shuffle!r}; there are full, block")
        if not 0 < self.block_size <= MAX_BLOCK_SIZE:
            raise MarinError(f"mixture: block_size is {self.block_size}; it must be between 1 and {MAX_BLOCK_SIZE}")
        starts = [stage.start for stage in self.stages]
        if starts[0] != 0 or starts != sorted(set(starts)) or any(start % self.block_size for start in starts):
            raise MarinError(
                f"mixture: stages start at {', '.join(map(str, starts))}; the first must start at 0, each later than "
                f"the one before, at a multiple of the block size {self.block_size}"
            )
        for stage in self.stages:
            check_weights(stage.weights)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "MixtureConfig":
        return cls(**{**data, "stages": tuple(WeightStage(**stage) for stage in data["stages"])})


def check_weights(weights: Mapping[str, float]) -> None:
    """Raises MarinError unless there are weights, and all are positive."""
    if not weights:
        raise MarinError("mixture: there are no weights; name at least one tokenized source")
    if bad := [f"{name}={weight}" for name, weight in weights.items() if not weight > 0]:
        raise MarinError(f"mixture weights must be positive: {', '.join(bad)}; leave a component out instead")
