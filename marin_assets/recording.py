"""Recording what runs came to: each once, whoever sees it end first, and later what nobody saw.

With a daemon the sensors do it (`sensors.py`); without one, `install` lets the command that ran do it at its end.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from marin_assets import run_tags
from marin_assets.run_outcomes import run_outcomes
from marin_core.errors import MarinError, in_one_line
from marin_core.profile import Profile
from marin_core.records.outcomes import record_run
from marin_core.store import Store

ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_AT_WORK = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING]
# So far back a look for what is not recorded goes, and so many runs with something to tell it records.
_NEWEST = 100
_AT_ONCE = 20
_NOTHING = "nothing to record"
GONE = "the process that ran it is gone"


@dataclass(frozen=True)
class Recorder:
    """Records runs of `keys` in the store at `root`, and no others."""

    root: str
    keys: frozenset[dg.AssetKey]

    @classmethod
    def of(cls, profile: Profile, assets: Iterable[Any]) -> "Recorder":
        """The recorder of a code location."""
        keys = (key for asset in assets if isinstance(asset, dg.AssetsDefinition) for key in asset.keys)
        return cls(profile.place.store, frozenset(keys))

    @functools.cached_property
    def store(self) -> Store:
        return Store(self.root)

    def record(self, instance: dg.DagsterInstance, run_id: str) -> str | None:
        """Record what an ended run came to, unless that is done or it is no run of this store; returns what the run
        is tagged with then, the fingerprint of the record."""
        run = instance.get_run_by_id(run_id)
        if run is None or run.status not in ENDED or not self._is_to_do(run):
            return None
        return record_run_outcomes(instance, run_id, self.store)

    def catch_up(self, instance: dg.DagsterInstance, held: Container[str] | None = None) -> list[str]:
        """Record those of the newest runs that nobody has recorded; returns their ids. Runs whose process is gone are
        marked as ended first. Where the fingerprints of all records that the store holds are given as `held`, what was
        recorded and is not among them, because somebody deleted it, is recorded again.

        Raises:
            MarinError: the store cannot be written, or what one of them did cannot be read; the others are recorded.
        """
        self.end_the_dead(instance)
        records = instance.get_run_records(dg.RunsFilter(statuses=ENDED), limit=_NEWEST)
        to_do = [record.dagster_run.run_id for record in records if self._is_to_do(record.dagster_run, held)]
        missed = to_do[:_AT_ONCE]
        unreadable: list[str] = []
        for run_id in reversed(missed):
            with skipping_unreadable(run_id, unreadable.append):
                record_run_outcomes(instance, run_id, self.store)
        if unreadable:
            raise MarinError("; ".join(unreadable))
        return missed

    def end_the_dead(self, instance: dg.DagsterInstance) -> list[str]:
        """Mark runs as ended that Dagster takes to be at work, and whose process on this host is gone; returns their
        ids."""
        at_work = instance.get_runs(dg.RunsFilter(statuses=_AT_WORK))
        dead = [run for run in at_work if self._is_to_do(run) and run_tags.process_is_gone(run_tags.own_tags(run))]
        for run in dead:
            if run.status is dg.DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, GONE)
            else:
                instance.report_run_failed(run, GONE)
        return [run.run_id for run in dead]

    def _is_to_do(self, run: dg.DagsterRun, held: Container[str] | None = None) -> bool:
        recorded = run_tags.own_tags(run).get(run_tags.RECORDED)
        if recorded and (held is None or recorded == _NOTHING or recorded in held):
            return False
        if run_tags.STORE in run.tags:
            return run.tags[run_tags.STORE] == self.root
        # It ended before any step of it began, or is none of ours.
        return bool(run.asset_selection) and run.asset_selection <= self.keys


@contextlib.contextmanager
def skipping_unreadable(run_id: str, tell: Callable[[str], object]) -> Iterator[None]:
    """Go on where the events of a run say what nobody expected, and `tell` so in one line: it must not keep the others
    from being recorded. A store or a database that is away is an error still."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        tell(f"run {run_id} cannot be recorded: {in_one_line(error)}")


def record_run_outcomes(instance: dg.DagsterInstance, run_id: str, store: Store) -> str:
    """Record what a run came to, and say so on the run. To do it again, or twice at once, changes nothing.

    Raises:
        MarinError: the store cannot be written.
    """
    run = instance.get_run_by_id(run_id)
    assert run
    outcomes = run_outcomes(instance, run, store)
    # Of a run that only found what was there, there is nothing to say.
    recorded = record_run(store, run_id, outcomes).fingerprint if outcomes else _NOTHING
    instance.add_run_tags(run_id, {run_tags.RUN: run_id, run_tags.RECORDED: recorded})
    return recorded


def install(recorder: Callable[[], Recorder]) -> None:
    """Let `dagster asset materialize`, which needs no daemon, record its run and what was missed before. Doing it twice
    changes nothing."""
    cli: Any = sys.modules.get("dagster._cli.asset")
    if cli is None or getattr(cli.execute_job, "_marin_records", False):
        return
    dagster_execute_job: Callable[..., Any] = cli.execute_job

    @functools.wraps(dagster_execute_job)
    def execute_job(*args: Any, **kwargs: Any) -> Any:
        try:
            return dagster_execute_job(*args, **kwargs)
        finally:
            _catch_up_or_warn(recorder, kwargs["instance"])

    execute_job._marin_records = True  # type: ignore[attr-defined]
    cli.execute_job = execute_job


def _catch_up_or_warn(recorder: Callable[[], Recorder], instance: dg.DagsterInstance) -> None:
    try:
        recorder().catch_up(instance)
    except Exception as error:  # whatever it is must not hide what became of the run itself
        print(f"what runs came to is not all recorded yet: {in_one_line(error)}", file=sys.stderr)
