"""The jobs that `dagster asset materialize --select 'delphi/*'` would submit, and what they would take."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core import environment
from marin_core.build import BuildOptions
from marin_core.errors import MarinError
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.jobs.estimate import (
    JobEstimate,
    check_fits,
    estimate,
    estimate_flops,
    refuse_flops,
    refuse_too_many_flops,
    with_plan,
)
from marin_core.jobs.pools import check_equal
from marin_core.jobs.spec import JobSpec
from marin_core.profile import Place, Profile
from marin_core.profile.load import UNSET_STORE
from marin_core.recipes.recipe import format_budget
from marin_core.status import State, graph_status, walk
from marin_core.store import ArtifactSpec, Store
from marin_core.store.store import plan_path
from marin_core.tasks import TASKS

# A client library of a cloud store tries for minutes before it says that nothing answers.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class _Missing:
    """What the store lacks. `heldout_run` is None while its model is not known, and where it is not missing."""

    specs: tuple[ArtifactSpec, ...]
    heldout: bool
    heldout_run: ArtifactSpec | None = None
    unreachable: str | None = None


@dataclass(frozen=True)
class DryRun:
    """What would be submitted: `jobs` with their `estimates`, and after them the held-out run.

    `heldout_job` is None while the model of the held-out run is not known; then `heldout` rests on its budget and,
    where the recipe has a published law, on the model that this chooses. `refusals` are reasons for which jobs would be
    refused. `unreachable` says why the store could not be asked, in which case everything counts as missing.
    """

    profile: Profile
    jobs: tuple[JobSpec, ...]
    estimates: tuple[JobEstimate, ...]
    heldout_job: JobSpec | None
    heldout: JobEstimate | None
    refusals: tuple[str, ...]
    unreachable: str | None

    @property
    def all_estimates(self) -> tuple[JobEstimate, ...]:
        return (*self.estimates, *([self.heldout] if self.heldout else []))

    def totals(self) -> dict[str, float | int | None]:
        """Sums over training runs; None where a run's part is not known.

        `hours` is the wall time if all runs of the suite train at once, on `chips_at_once`, and the held-out run after.
        """
        suite = [e for e in self.estimates if e.flops is not None]
        training = [*suite, *([self.heldout] if self.heldout else [])]
        first, last = [e.hours for e in suite], [self.heldout.hours] if self.heldout else []
        return {
            "jobs": len(self.all_estimates),
            "runs": len(training),
            "chips_at_once": max(sum(e.chips for e in suite), self.heldout.chips if self.heldout else 0),
            "tokens": _all(sum, [e.tokens for e in training]),
            "flops": _all(sum, [e.flops for e in training]),
            "hours": _all(sum, [_all(_longest, first), _all(_longest, last)]),
            "chip_hours": _all(sum, [e.chip_hours for e in training]),
            "cost": _all(sum, [e.cost for e in training]),
        }

    def manifests(self) -> list[dict[str, Any]]:
        """What the cluster would get for every job whose artifact is known.

        Raises:
            MarinError: the profile's jobs are processes on this machine.
        """
        from marin_core.jobs.kubernetes.manifests import manifest

        place = self.profile.place
        if place.kubernetes is None:
            raise MarinError(
                f"profile {self.profile.name} has no [place.kubernetes]: its jobs are processes on this machine and "
                "have no manifests; name a profile that has with --profile or MARIN_PROFILE"
            )
        options = _options(place)
        jobs = [*self.jobs, *([self.heldout_job] if self.heldout_job else [])]
        return [
            manifest(job, place.kubernetes, store=place.store, plan=plan_path(job.artifact), options=options)
            for job in jobs
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": self.profile.name,
            "store": self.profile.place.store,
            "store_unreachable": self.unreachable,
            "assumed_mfu": self.profile.place.assumed_mfu,
            "jobs": [e.to_json() for e in self.all_estimates],
            "totals": self.totals(),
            "refusals": list(self.refusals),
        }


def dry_run(profile: Profile) -> DryRun:
    """Find what the store lacks, and estimate the jobs that would make it. Writes nothing, submits nothing.

    Raises:
        MarinError: the profile's pools are unknown or unequal, or MARIN_MAX_FLOPS is no number.
    """
    place = profile.place
    missing = _missing(LabGraph.of(profile), place.store)
    jobs = tuple(
        _job(spec, place, place.suite_pools if spec.name == CHECKPOINTS else place.data_pools)
        for spec in missing.specs
        if not TASKS[spec.task].light
    )
    heldout_job = _job(missing.heldout_run, place, place.heldout_pools) if missing.heldout_run else None
    estimates = tuple(estimate(job, place.assumed_mfu, place.prices) for job in jobs)
    heldout = _estimate_heldout(profile, heldout_job) if missing.heldout else None
    limit = environment.max_flops() or place.max_flops
    refusals = (*_misfits([*estimates, *([heldout] if heldout else [])]), *_excess(jobs, heldout, limit))
    return DryRun(profile, jobs, estimates, heldout_job, heldout, refusals, missing.unreachable)


def _missing(graph: LabGraph, root: str) -> _Missing:
    everything = (*graph.unpartitioned(), *graph.cells.values())
    store = _reached(root, everything[0])
    if isinstance(store, str):
        return _Missing(everything, heldout=True, unreachable=store)
    statuses = walk(graph_status(graph, store))
    specs = tuple(status.spec for status in statuses if status.state is not State.COMMITTED)
    if store.current(graph.forecast) is None:
        return _Missing(specs, heldout=True)
    run = graph.heldout_run(store)
    if store.current(run) is not None:
        return _Missing(specs, heldout=False)
    return _Missing(specs, heldout=True, heldout_run=run)


def _reached(root: str, spec: ArtifactSpec) -> Store | str:
    """The store, or why it does not answer when it is asked for an artifact."""
    if root == UNSET_STORE:
        return "no store is set; set MARIN_STORE, or store in [place]"
    answers: list[Store | str] = []

    def ask() -> None:
        try:
            store = Store(root)
            store.record(spec.name, spec.fingerprint)
            answers.append(store)
        except MarinError as error:
            answers.append(str(error))

    # A daemon, because the client library may go on trying and must not keep the command from ending.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return answers[0] if answers else f"store {root} did not answer within {_PATIENCE_SECONDS:g} s"


def _job(spec: ArtifactSpec, place: Place, pools: tuple[str, ...]) -> JobSpec:
    return JobSpec(
        spec,
        pools,
        max_failures=place.max_failures,
        max_preemptions=place.max_preemptions,
        ranks=place.data_ranks if TASKS[spec.task].stage else 1,
    )


def _estimate_heldout(profile: Profile, job: JobSpec | None) -> JobEstimate:
    """Of the job where it is known, else of the run that the recipe's published law chooses, else of the budget."""
    scale, place = profile.scale, profile.place
    if job is not None:
        return estimate(job, place.assumed_mfu, place.prices)
    label = f"{CHECKPOINTS} [{format_budget(scale.heldout_budget)}, held out]"
    by_budget = estimate_flops(
        scale.heldout_budget, check_equal(place.heldout_pools), place.assumed_mfu, place.prices, artifact=label
    )
    if scale.recipe.token_law is None:
        return by_budget
    return with_plan(by_budget, LabGraph.of(profile).plan(scale.recipe.optimal(scale.heldout_budget)))


def _misfits(estimates: Sequence[JobEstimate]) -> Iterator[str]:
    for one in estimates:
        try:
            check_fits(one)
        except MarinError as error:
            yield str(error)


def _excess(jobs: Sequence[JobSpec], heldout: JobEstimate | None, limit: float | None) -> Iterator[str]:
    """The suite and the held-out run are held against the limit each for itself, as when they are submitted."""
    try:
        refuse_too_many_flops(jobs, limit)
    except MarinError as error:
        yield str(error)
    try:
        refuse_flops(heldout.flops or 0.0 if heldout else 0.0, 1, limit)
    except MarinError as error:
        yield str(error)


def _options(place: Place) -> BuildOptions:
    return BuildOptions(
        scratch=environment.state_folder() / "scratch",
        checkpoint_every_seconds=place.checkpoint_every_seconds,
        checkpoint_every_steps=place.checkpoint_every_steps,
        ranks=place.data_ranks,
    )


def _all(reduce: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """What `reduce` makes of the values, None if one of them is."""
    known = [value for value in values if value is not None]
    return reduce(known) if len(known) == len(values) else None


def _longest(hours: list[float]) -> float:
    return max(hours, default=0.0)
