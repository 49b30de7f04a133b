"""Runs whose end nobody saw, and those that ended before they began."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._utils import get_run_crash_explanation

from marin_assets import run_tags
from marin_assets.recording import GONE, Recorder
from marin_assets.sensors import recording_sensors
from marin_core.errors import MarinError
from marin_core.records.outcome import ExitClass
from marin_core.records.outcomes import RUNS, read_outcomes
from marin_core.store import Store
from marin_core.store.lease import machine
from marin_core.store.record import Provenance

KEY = dg.AssetKey(["delphi", "suite"])


@dg.asset(key=KEY)
def suite() -> None: ...


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as opened:
        yield opened


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(str(tmp_path / "store"), frozenset({KEY}))


def begun(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, tags: dict[str, str]) -> str:
    job = dg.Definitions(assets=[suite]).resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(job, asset_selection=frozenset({KEY}), status=status, tags=tags)
    return run.run_id


def tagged(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, tags: dict[str, str]) -> str:
    """A run on which tags were written as it began."""
    run_id = begun(instance, status, {})
    instance.add_run_tags(run_id, tags | {run_tags.RUN: run_id})
    return run_id


def by_a_process_that_is_gone(recorder: Recorder) -> dict[str, str]:
    host = Provenance.of(started="", ended="", command="", dagster_run=None, retries=0).host
    # No process has the number 2**22, the highest that Linux gives, and began as the machine did.
    gone = {run_tags.PROCESS: f"{2**22} 1 {machine()}", run_tags.HOST: host}
    return gone | {run_tags.STORE: recorder.root, run_tags.COMMIT: "0123abc", run_tags.DIRTY: "true"}


def look_for_missed(instance: dg.DagsterInstance, recorder: Recorder) -> None:
    sensor = next(one for one in recording_sensors(recorder) if one.name == "record_missed_runs")
    sensor.evaluate_tick(dg.build_sensor_context(instance))


@pytest.mark.parametrize(
    ("status", "ends_in", "exit_class"),
    [
        (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE, ExitClass.INFRASTRUCTURE),
        (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, ExitClass.CANCELLED),
    ],
)
def test_a_run_whose_process_is_gone_is_ended_and_recorded_once(
    instance: dg.DagsterInstance,
    recorder: Recorder,
    status: dg.DagsterRunStatus,
    ends_in: dg.DagsterRunStatus,
    exit_class: ExitClass,
) -> None:
    run_id = tagged(instance, status, by_a_process_that_is_gone(recorder))
    look_for_missed(instance, recorder)
    look_for_missed(instance, recorder)
    recorder.catch_up(instance)
    run = instance.get_run_by_id(run_id)
    assert run and run.status is ends_in
    (row,) = read_outcomes(Store(recorder.root))
    assert (row.dagster_run, row.asset, row.exit_class) == (run_id, "delphi/suite", exit_class)
    assert (row.commit, row.dirty) == ("0123abc", True)
    assert row.reason == (GONE if exit_class is ExitClass.INFRASTRUCTURE else "the run was cancelled")
    assert len(Store(recorder.root).records(RUNS)) == 1


def test_a_run_at_work_elsewhere_is_left_alone(instance: dg.DagsterInstance, recorder: Recorder) -> None:
    tags = by_a_process_that_is_gone(recorder) | {run_tags.HOST: "another"}
    run_id = tagged(instance, dg.DagsterRunStatus.STARTED, tags)
    look_for_missed(instance, recorder)
    run = instance.get_run_by_id(run_id)
    assert run and run.status is dg.DagsterRunStatus.STARTED
    assert read_outcomes(Store(recorder.root)) == []


def test_a_run_that_was_cancelled_before_it_began(instance: dg.DagsterInstance, recorder: Recorder) -> None:
    run_id = begun(instance, dg.DagsterRunStatus.CANCELED, {})
    assert recorder.catch_up(instance) == [run_id]
    (row,) = read_outcomes(Store(recorder.root))
    assert (row.asset, row.status, row.exit_class) == ("delphi/suite", "cancelled", ExitClass.CANCELLED)


def test_a_run_of_another_store_is_left_to_whoever_has_it(instance: dg.DagsterInstance, recorder: Recorder) -> None:
    begun(instance, dg.DagsterRunStatus.CANCELED, {run_tags.STORE: "gs://elsewhere"})
    assert recorder.catch_up(instance) == []
    assert read_outcomes(Store(recorder.root)) == []


def test_a_run_that_executes_another_again_has_an_outcome_of_its_own(
    instance: dg.DagsterInstance, recorder: Recorder
) -> None:
    first = tagged(instance, dg.DagsterRunStatus.FAILURE, by_a_process_that_is_gone(recorder))
    recorder.catch_up(instance)
    ended = instance.get_run_by_id(first)
    assert ended and ended.tags[run_tags.RECORDED]
    # So Dagster makes a run that executes another again, which waits or has just begun.
    again = begun(instance, dg.DagsterRunStatus.STARTED, dict(ended.tags))
    look_for_missed(instance, recorder)
    run = instance.get_run_by_id(again)
    assert run and run.status is dg.DagsterRunStatus.STARTED
    told = {"store": recorder.root, "profile": "p", "command": "c", "steps_are_processes": False}
    run_tags.tag_run(instance, run, **told)  # type: ignore[arg-type]
    run = instance.get_run_by_id(again)
    assert run
    instance.report_run_failed(run)
    look_for_missed(instance, recorder)
    assert recorder.catch_up(instance) == [again]
    rows = read_outcomes(Store(recorder.root))
    assert [row.dagster_run for row in rows] == [first, again]
    assert rows[1].command == "c"


def test_a_run_of_which_nobody_can_make_sense_keeps_no_other_from_being_recorded(
    instance: dg.DagsterInstance, recorder: Recorder
) -> None:
    @dg.asset(key=KEY)
    def odd(context: dg.AssetExecutionContext) -> None:
        context.log_event(dg.AssetObservation(KEY, metadata={"outcome": "failed", "exit_class": "hit by lightning"}))

    unreadable = dg.materialize([odd], instance=instance, tags={run_tags.STORE: recorder.root}).run_id
    later = begun(instance, dg.DagsterRunStatus.CANCELED, {})
    with pytest.raises(MarinError, match=f"run {unreadable} cannot be recorded: .*hit by lightning"):
        recorder.catch_up(instance)
    assert [row.dagster_run for row in read_outcomes(Store(recorder.root))] == [later]
    look_for_missed(instance, recorder)


def test_a_record_that_somebody_deleted_is_made_again_for_the_table(
    instance: dg.DagsterInstance, recorder: Recorder
) -> None:
    run_id = begun(instance, dg.DagsterRunStatus.CANCELED, {})
    assert recorder.catch_up(instance, held=recorder.store.fingerprints(RUNS)) == [run_id]
    assert recorder.catch_up(instance, held=recorder.store.fingerprints(RUNS)) == []
    shutil.rmtree(Path(recorder.root) / RUNS)
    assert recorder.catch_up(instance) == []
    assert recorder.catch_up(instance, held=recorder.store.fingerprints(RUNS)) == [run_id]
    assert [row.dagster_run for row in read_outcomes(recorder.store)] == [run_id]


def test_a_run_whose_process_ended_under_a_code_server_says_how(
    instance: dg.DagsterInstance, recorder: Recorder
) -> None:
    run_id = begun(instance, dg.DagsterRunStatus.STARTED, {})
    run = instance.get_run_by_id(run_id)
    assert run
    # As Dagster's code server reports it.
    instance.report_engine_event(get_run_crash_explanation(f"Run execution process for {run_id}", -9), run)
    instance.report_run_failed(run)
    recorder.catch_up(instance)
    (row,) = read_outcomes(recorder.store)
    assert row.exit_class is ExitClass.INFRASTRUCTURE
    assert row.reason == "the process that ran it was terminated by signal 9 (SIGKILL)"
