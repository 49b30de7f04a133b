"""The jobs that `dagster asset materialize --select 'delphi/*'` would submit, and what they would take."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marin_core import environment
from marin_core.build import BuildOptions
from marin_core.cli.reach import reached
from marin_core.errors import MarinError
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.graph.placement import job_of
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
from marin_core.status import ArtifactStatus, State, graph_status, walk
from marin_core.store import ArtifactSpec
from marin_core.store.store import plan_path
from marin_core.tasks import TASKS


@dataclass(frozen=True)
class _Missing:
    """What the store lacks. `heldout` has the missing held-out runs by partition, None while the model is not known."""

    specs: tuple[ArtifactSpec, ...]
    heldout: Mapping[str, ArtifactSpec | None]
    unreachable: str | None = None


@dataclass(frozen=True)
class DryRun:
    """What would be submitted: `jobs` with their `estimates`, and after them the held-out runs.

    There are no `heldout_jobs` while the models of the held-out runs are not known; then `heldout` rests on their
    budgets and, where the recipe has a published law, on the models that this chooses. `refusals` are reasons for which
    jobs would be refused. `unreachable` says why the store could not be asked, in which case everything counts as
    missing. The evaluations of held-out runs are not in it.
    """

    profile: Profile
    jobs: tuple[JobSpec, ...]
    estimates: tuple[JobEstimate, ...]
    heldout_jobs: tuple[JobSpec, ...]
    heldout: tuple[JobEstimate, ...]
    refusals: tuple[str, ...]
    unreachable: str | None

    @property
    def all_estimates(self) -> tuple[JobEstimate, ...]:
        return (*self.estimates, *self.heldout)

    def totals(self) -> dict[str, float | int | None]:
        """Sums over training runs; None where a run's part is not known.

        `hours` is the wall time if all runs of the suite train at once, and the held-out runs after them; both on
        `chips_at_once`.
        """
        suite = [e for e in self.estimates if e.flops is not None]
        training = [*suite, *self.heldout]
        first, last = [e.hours for e in suite], [e.hours for e in self.heldout]
        return {
            "jobs": len(self.all_estimates),
            "runs": len(training),
            "chips_at_once": max(sum(e.chips for e in suite), sum(e.chips for e in self.heldout)),
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
        jobs = [*self.jobs, *self.heldout_jobs]
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
    graph = LabGraph.of(profile)
    missing = _missing(graph, place.store)
    jobs = tuple(job_of(spec, graph, place) for spec in missing.specs if not TASKS[spec.task].light)
    heldout_jobs = tuple(job_of(run, graph, place) for run in missing.heldout.values() if run is not None)
    estimates = tuple(estimate(job, place.assumed_mfu, place.prices) for job in jobs)
    heldout = tuple(_estimate_heldout(graph, place, key, run) for key, run in missing.heldout.items())
    limit = environment.max_flops() or place.max_flops
    refusals = (*_misfits([*estimates, *heldout]), *_excess(jobs, heldout, limit))
    return DryRun(profile, jobs, estimates, heldout_jobs, heldout, refusals, missing.unreachable)


def _missing(graph: LabGraph, root: str) -> _Missing:
    unknown = dict.fromkeys(graph.heldout_partitions)
    everything = graph_status(graph, None)
    first = next(walk(everything)).spec
    store = reached(root, first)
    if isinstance(store, str):
        return _Missing(_of_the_suite(everything), unknown, unreachable=store)
    specs = _of_the_suite(graph_status(graph, store))
    if store.current(graph.forecast) is None:
        return _Missing(specs, unknown)
    runs = graph.heldout_runs(store)
    return _Missing(specs, {key: run for key, run in runs.items() if store.current(run) is None})


def _of_the_suite(root: ArtifactStatus) -> tuple[ArtifactSpec, ...]:
    """What is not committed of all that the suite is made of, which is what `delphi/*` builds."""
    suite = replace(root, inputs=tuple(one for one in walk(root) if one.spec.name.startswith("delphi/")))
    return tuple(status.spec for status in walk(suite) if status.state is not State.COMMITTED)


def _estimate_heldout(graph: LabGraph, place: Place, key: str, run: ArtifactSpec | None) -> JobEstimate:
    """Of the job where it is known, else of the run that the recipe's published law chooses, else of the budget."""
    if run is not None:
        return estimate(job_of(run, graph, place), place.assumed_mfu, place.prices)
    recipe, flops = graph.scale.recipe, graph.heldout_partitions[key].flops
    pools = check_equal(place.heldout_pools_of(flops))
    by_budget = estimate_flops(flops, pools, place.assumed_mfu, place.prices, artifact=f"{CHECKPOINTS} [{key}]")
    return by_budget if recipe.token_law is None else with_plan(by_budget, graph.plan(recipe.optimal(flops)))


def _misfits(estimates: Sequence[JobEstimate]) -> Iterator[str]:
    for one in estimates:
        try:
            check_fits(one)
        except MarinError as error:
            yield str(error)


def _excess(jobs: Sequence[JobSpec], heldout: Sequence[JobEstimate], limit: float | None) -> Iterator[str]:
    """The suite and the held-out runs are held against the limit each for itself, as when they are submitted."""
    try:
        refuse_too_many_flops(jobs, limit)
    except MarinError as error:
        yield str(error)
    try:
        refuse_flops(sum(one.flops or 0.0 for one in heldout), len(heldout), limit)
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
