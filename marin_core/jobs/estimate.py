"""What a job needs and what it would cost, before it is submitted; and what is refused because of that."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_core.errors import MarinError
from marin_core.jobs.pools import Pool, all_pools, check_equal
from marin_core.jobs.spec import JobSpec
from marin_core.recipes.footprint import hbm_bytes, least_hbm_bytes, training_seconds
from marin_core.recipes.layout import training_layout
from marin_core.recipes.plan import TrainPlan


@dataclass(frozen=True)
class JobEstimate:
    """One job on the first of its equal pools. None stands for what is not known before it runs.

    `chips` are cores for a `cpu` pool, of all ranks together. GiB are per chip: `hbm_gib_needed` is what no run can do
    without, `hbm_gib_reserved` what the published launches would set aside, `hbm_gib_available` what the smallest of
    the pools has. `flops` are training FLOPs; `hours` wall hours of training; `cost` US dollars.
    """

    artifact: str
    pool: str
    chips: int
    job: str | None = None
    hbm_gib_needed: float | None = None
    hbm_gib_reserved: float | None = None
    hbm_gib_available: float | None = None
    tokens: int | None = None
    flops: float | None = None
    hours: float | None = None
    chip_hours: float | None = None
    cost: float | None = None
    pools: tuple[Pool, ...] = field(default=(), repr=False)
    plan: TrainPlan | None = field(default=None, repr=False)

    @property
    def is_tight(self) -> bool:
        """Whether the published launches would have taken a larger slice. It may fit all the same."""
        return (self.hbm_gib_reserved or 0) > (self.hbm_gib_available or math.inf)

    def to_json(self) -> dict[str, Any]:
        """The figures; the pools by name, without the plan."""
        hidden = ("pools", "plan")
        figures = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in hidden}
        return {**figures, "pools": [pool.name for pool in self.pools]}


def estimate(job: JobSpec, mfu: float, prices: Mapping[str, float]) -> JobEstimate:
    """What a job needs, at a model FLOPs utilization and prices per chip-hour by family of pools.

    Raises:
        MarinError: unknown pools, or pools that are not equal.
    """
    pools = check_equal(job.pools)
    plan = train_plan(job)
    if plan is None:
        return JobEstimate(job.artifact.label, pools[0].name, pools[0].chips * job.ranks, job=job.name, pools=pools)
    timed = estimate_flops(plan.flops, pools, mfu, prices, artifact=job.artifact.label)
    return with_plan(dataclasses.replace(timed, job=job.name), plan)


def estimate_flops(
    flops: float, pools: Sequence[Pool], mfu: float, prices: Mapping[str, float], *, artifact: str
) -> JobEstimate:
    """A training run of which only the FLOPs are known; its hours are None on `cpu`, whose peak is not known."""
    pool = pools[0]
    hours = None if pool.peak_flops is None else training_seconds(flops, pool.chips * pool.peak_flops, mfu) / 3600
    chip_hours = None if hours is None else hours * pool.chips
    price = prices.get(pool.family)
    return JobEstimate(
        artifact=artifact,
        pool=pool.name,
        chips=pool.chips,
        hbm_gib_available=min((p.hbm_gib for p in pools if p.hbm_gib is not None), default=None),
        flops=flops,
        hours=hours,
        chip_hours=chip_hours,
        cost=None if chip_hours is None or price is None else chip_hours * price,
        pools=tuple(pools),
    )


def with_plan(estimate: JobEstimate, plan: TrainPlan) -> JobEstimate:
    """The estimate of a training run, with what its plan says of tokens and memory."""
    if estimate.hbm_gib_available is None:
        return dataclasses.replace(estimate, tokens=plan.tokens, plan=plan)
    share = estimate.chips * 2**30
    return dataclasses.replace(
        estimate,
        tokens=plan.tokens,
        plan=plan,
        hbm_gib_needed=least_hbm_bytes(plan) / share,
        hbm_gib_reserved=hbm_bytes(plan) / share,
    )


def check_fits(estimate: JobEstimate) -> None:
    """Refuse what cannot run: a model larger than the pool's memory, a batch that its devices cannot share.

    Raises:
        MarinError: with the run, the pool, both numbers, and the smallest pool of the family that would do.
    """
    plan = estimate.plan
    if plan is None:
        return
    for pool in estimate.pools:
        needed = least_hbm_bytes(plan) / pool.chips / 2**30
        if pool.hbm_gib is not None and needed > pool.hbm_gib:
            raise MarinError(
                f"{estimate.artifact} does not fit {pool.name}: it needs at least {needed:.1f} GiB of HBM per chip, "
                f"which has {pool.hbm_gib:g}; {_remedy(plan, pool)}"
            )
        try:
            training_layout(plan, pool.devices, pool.slices)
        except MarinError as error:
            raise MarinError(f"{estimate.artifact} cannot run on {pool.name}: {error}; {_remedy(plan, pool)}") from None


def refuse_too_many_flops(jobs: Sequence[JobSpec], max_flops: float | None) -> None:
    """Refuse work of more training FLOPs than a place allows; `max_flops` None allows any.

    Raises:
        MarinError: with the sum, the limit, and what lifts it.
    """
    flops = [plan.flops for job in jobs if (plan := train_plan(job)) is not None]
    refuse_flops(sum(flops), len(flops), max_flops)


def refuse_flops(flops: float, runs: int, max_flops: float | None) -> None:
    """As `refuse_too_many_flops`, for a sum that is known."""
    if max_flops is None or flops <= max_flops:
        return
    these = f"these {runs} runs need" if runs != 1 else "this run needs"
    raise MarinError(
        f"{these} {_short(flops)} training FLOPs, more than the {_short(max_flops)} of max_flops in [place]; raise it, "
        f"or for this once set MARIN_MAX_FLOPS={_short(_rounded_up(flops))}"
    )


def train_plan(job: JobSpec) -> TrainPlan | None:
    """The plan of a training job, None for every other job."""
    plan = job.artifact.config.get("plan") if job.artifact.task == "train" else None
    return None if plan is None else TrainPlan.from_json(plan)


def _remedy(plan: TrainPlan, pool: Pool) -> str:
    fitting = [p for p in all_pools() if p.family == pool.family and _fits(plan, p)]
    if fitting:
        return f"the smallest {pool.family} that does is {min(fitting, key=lambda p: p.chips).name}"
    return f"no {pool.family} does; `marin pools` prints the others"


def _fits(plan: TrainPlan, pool: Pool) -> bool:
    has = math.inf if pool.hbm_gib is None else pool.hbm_gib * pool.chips * 2**30
    try:
        training_layout(plan, pool.devices, pool.slices)
    except MarinError:
        return False
    return least_hbm_bytes(plan) <= has


def _rounded_up(flops: float) -> float:
    """Two significant digits, never less than it: what a person would type."""
    step = 10.0 ** (math.floor(math.log10(flops)) - 1)
    rounded = round(flops / step) * step
    return rounded if rounded >= flops else rounded + step


def _short(flops: float) -> str:
    return f"{flops:.3g}".replace("e+", "e")
