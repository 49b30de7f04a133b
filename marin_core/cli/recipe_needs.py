"""What a run asks of hardware: memory, the smallest pool, how its chips share a sequence, time."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from marin_core.errors import MarinError
from marin_core.jobs.pools import Pool, all_pools, parse_pool
from marin_core.recipes import TrainPlan
from marin_core.recipes.footprint import hbm_bytes, least_hbm_bytes, training_seconds
from marin_core.recipes.layout import training_layout


@dataclass(frozen=True)
class Hardware:
    """Which chips are asked about: a pool, or the smallest of a family; `mfu` is the model FLOPs utilization."""

    family: str
    mfu: float
    pool: Pool | None = None

    @classmethod
    def of(cls, family: str, pool: str | None, mfu: float) -> "Hardware":
        """Raises MarinError for an unknown family, an unknown pool, or a pool whose chips are not known."""
        known = list(dict.fromkeys(one.family for one in all_pools()))
        if pool is None and family not in known:
            raise MarinError(f"no pools of family {family!r}; there are {', '.join(known)}")
        chosen = parse_pool(pool) if pool else None
        if chosen is not None and (chosen.hbm_gib is None or chosen.peak_flops is None):
            raise MarinError(f"pool {chosen.name} has no HBM and no known peak; give one that `marin pools` prints")
        return cls(chosen.family if chosen else family, mfu, chosen)

    def pools(self) -> list[Pool]:
        """The pools to choose from, smallest first."""
        if self.pool is not None:
            return [self.pool]
        return sorted((p for p in all_pools() if p.family == self.family), key=lambda p: p.chips)


@dataclass(frozen=True)
class Needs:
    """What one run asks for. GiB of HBM: of all chips together as the published launches reserve it, and the least that
    no run can do without; then, on `pool`, reserved and available per chip. None where no pool has the
    memory and can share the batch."""

    hbm_gib: float
    least_hbm_gib: float
    chip_hours: float
    pool: str | None = None
    chips: int | None = None
    hbm_gib_per_chip: float | None = None
    hbm_gib_available: float | None = None
    tensor_parallel: int | None = None
    hours: float | None = None

    @property
    def is_tight(self) -> bool:
        """Whether the published launches would have taken a larger pool than the one that was asked for."""
        return (self.hbm_gib_per_chip or 0) > (self.hbm_gib_available or float("inf"))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def needs(plan: TrainPlan, hardware: Hardware) -> Needs:
    """What a plan asks for, on the smallest pool that has the memory and whose chips can share its batch.

    A pool that was asked for by name need not have the memory.
    """
    pools = hardware.pools()
    chip_seconds = training_seconds(plan.flops, pools[0].peak_flops or 0, hardware.mfu)
    asked = Needs(hbm_bytes(plan) / 2**30, least_hbm_bytes(plan) / 2**30, chip_seconds / 3600)
    for pool in pools:
        if hardware.pool is None and asked.hbm_gib > pool.chips * (pool.hbm_gib or 0):
            continue
        try:
            layout = training_layout(plan, pool.devices, pool.slices)
        except MarinError:
            continue  # its chips cannot share the batch or the width
        return dataclasses.replace(
            asked,
            pool=pool.name,
            chips=pool.chips,
            hbm_gib_per_chip=asked.hbm_gib / pool.chips,
            hbm_gib_available=pool.hbm_gib,
            tensor_parallel=layout.tensor,
            hours=asked.chip_hours / pool.chips,
        )
    return asked
