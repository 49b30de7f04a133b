"""What becomes of runs that really go wrong: each ends as one record of the right class, whoever saw it end."""

import os
import shutil
import signal
import time
from pathlib import Path

import dagster as dg
import pytest

from marin_assets import run_tags
from marin_assets.keys import asset_key
from marin_assets.recording import GONE, Recorder
from marin_assets.sensors import recording_sensors
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.profile import load_profile
from marin_core.records.outcome import ExitClass
from marin_core.records.outcomes import RUNS, TABLE
from marin_core.store import Store
from tests.conftest import TINY_PROFILE, LabEnvironment
from tests.records import failures
from tests.records.failures import DIVERGED, KILLED, OUT_OF_MEMORY, instance, outcome_of, outcomes, recorder

pytestmark = pytest.mark.slow
CUT_SHORT = "1.6e10-d0008"


@pytest.fixture(scope="module")
def lab(finished_lab: LabEnvironment, tmp_path_factory: pytest.TempPathFactory) -> LabEnvironment:
    """A lab in which one run diverged, one ran out of memory and one was killed."""
    return failures.lab_with_failures(finished_lab, tmp_path_factory.mktemp("failures"))


@pytest.fixture
def copy(finished_lab: LabEnvironment, tmp_path: Path) -> LabEnvironment:
    return failures.copy_of(finished_lab, tmp_path)


def recorded_runs(lab: LabEnvironment) -> list[str]:
    return [str(record.payload["config"]["dagster_run"]) for record in Store(str(lab.store)).records(RUNS)]


def wait_for_work(lab: LabEnvironment, key: str) -> None:
    deadline = time.monotonic() + 240
    while not failures.worker_at_work(lab, failures.rows_of(lab, key)):
        assert time.monotonic() < deadline, (lab.folder / f"{key}.log").read_text()
        time.sleep(0.05)


def test_a_finished_lab_has_a_row_for_everything_that_it_built(finished_lab: LabEnvironment) -> None:
    rows = {(row.asset, row.partition): row for row in outcomes(finished_lab)}
    assert all(row.status == "succeeded" for row in rows.values())
    graph = LabGraph.of(load_profile(str(TINY_PROFILE)))
    for key, spec in graph.cells.items():
        row = rows[CHECKPOINTS, key]
        summary = Store(str(finished_lab.store)).artifact(spec).record.summary
        assert (row.last_step, row.loss) == (summary["steps"] - 1, summary["eval_loss"])
        assert row.fingerprint == spec.fingerprint
        assert row.began and row.began < row.ended
        assert (row.pool, row.profile, row.host) == ("cpu-1", "tiny", os.uname().nodename)
        assert row.chip_hours and 0 < row.chip_hours < 0.5
        assert row.command and row.command.endswith("materialize --select 'delphi/*'")
    assert ("delphi/verdict", None) in rows


def test_a_run_that_diverged(lab: LabEnvironment) -> None:
    row = outcome_of(lab, DIVERGED)
    assert (row.status, row.exit_class) == ("failed", ExitClass.DIVERGED)
    assert row.last_step is not None and row.steps is not None and row.last_step < row.steps
    assert row.loss is None
    assert f"diverged at step {row.last_step}" in row.reason
    assert any("loss is nan" in line for line in row.log_tail)
    assert row.profile == "diverging"
    assert row.command and DIVERGED in row.command
    assert row.chip_hours and row.chip_hours > 0


def test_a_run_that_ran_out_of_memory(lab: LabEnvironment) -> None:
    row = outcome_of(lab, OUT_OF_MEMORY)
    assert (row.status, row.exit_class) == ("failed", ExitClass.OUT_OF_MEMORY)
    # It trained to its end; the evaluation did not fit.
    assert row.last_step is not None and row.last_step + 1 == row.steps
    assert row.loss and row.loss > 0
    assert "\n" not in row.reason
    assert any("memory" in line.lower() or "allocate" in line for line in row.log_tail)


def test_a_run_whose_worker_was_killed_until_it_could_not_be_tried_again(lab: LabEnvironment) -> None:
    row = outcome_of(lab, KILLED)
    assert (row.status, row.exit_class) == ("failed", ExitClass.INFRASTRUCTURE)
    assert "killed (SIGKILL) by something outside, 2 times" in row.reason
    # What the second worker reached, which went on from the first one's checkpoint or began again.
    assert row.last_step is not None and row.last_step > 3
    assert row.failures == 1
    assert any("First train step completed" in line for line in row.log_tail)


def test_a_failure_is_on_the_page_of_its_partition(lab: LabEnvironment) -> None:
    row = outcome_of(lab, OUT_OF_MEMORY)
    filter_ = dg.AssetRecordsFilter(asset_key(CHECKPOINTS), asset_partitions=[OUT_OF_MEMORY])
    latest = instance(lab).fetch_observations(filter_, limit=1).records[0].asset_observation
    assert latest
    told = {name: value.value for name, value in latest.metadata.items()}
    assert (told["exit_class"], told["reason"]) == ("out of memory", row.reason)
    assert (told["last_step"], told["loss"], told["pool"]) == (row.last_step, row.loss, "cpu-1")
    assert row.log_tail[-1] in str(told["log_tail"])


def test_a_failure_costs_no_more_events_than_a_run_may(lab: LabEnvironment) -> None:
    for record in instance(lab).get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])):
        logs = instance(lab).all_logs(record.dagster_run.run_id)
        assert sum(len(dg.serialize_value(entry)) for entry in logs) < 60_000


def test_whoever_sees_a_run_end_later_records_nothing_more(lab: LabEnvironment) -> None:
    before = recorded_runs(lab)
    ended = instance(lab).get_runs()
    # As if the tags had not been written, by a process that ended between the two.
    for run in ended:
        instance(lab).run_storage.add_run_tags(run.run_id, {run_tags.RECORDED: ""})
    for sensor in recording_sensors(recorder(lab)):
        with instance(lab) as opened:
            sensor.evaluate_tick(dg.build_sensor_context(opened))
    recorder(lab).catch_up(instance(lab))
    assert recorded_runs(lab) == before
    assert len(set(before)) == len(before)
    assert len([row for row in outcomes(lab) if row.status != "succeeded"]) == 3


def test_a_run_whose_process_was_killed_is_marked_and_recorded_by_the_next_command(copy: LabEnvironment) -> None:
    command = failures.start(copy, CUT_SHORT)
    wait_for_work(copy, CUT_SHORT)
    os.killpg(command.pid, signal.SIGKILL)
    command.wait()
    (run,) = instance(copy).get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    result = copy.materialize("delphi/recipe")
    assert result.returncode == 0, result.stderr
    assert instance(copy).get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]
    row = outcome_of(copy, CUT_SHORT)
    assert (row.dagster_run, row.asset) == (run.run_id, CHECKPOINTS)
    assert (row.status, row.exit_class, row.reason) == ("failed", ExitClass.INFRASTRUCTURE, GONE)
    assert row.last_step is not None and row.last_step >= 3
    assert row.loss and row.loss > 0
    assert [other for other in outcomes(copy) if other.dagster_run == run.run_id] == [row]


def test_a_run_that_is_cancelled(copy: LabEnvironment) -> None:
    command = failures.start(copy, CUT_SHORT)
    wait_for_work(copy, CUT_SHORT)
    command.send_signal(signal.SIGINT)
    assert command.wait(60) != 0
    row = outcome_of(copy, CUT_SHORT)
    assert (row.status, row.exit_class) == ("cancelled", ExitClass.CANCELLED)
    assert row.last_step is not None and row.last_step >= 3


def test_with_a_daemon_the_sensors_record(copy: LabEnvironment) -> None:
    """A run that no command followed to its end, as one from the web UI."""
    shutil.rmtree(copy.store / "delphi" / "recipe")
    opened = instance(copy)
    sensors = {sensor.name: sensor for sensor in recording_sensors(recorder(copy))}
    success = sensors["record_success"]
    cursor = success.evaluate_tick(dg.build_sensor_context(opened)).cursor
    before = recorded_runs(copy)
    command = "from marin_assets.definitions import defs; import dagster as dg; " + (
        "dg.materialize([a for a in defs.assets], selection='delphi/recipe', resources=defs.resources, "
        "instance=dg.DagsterInstance.get())"
    )
    result = copy.run("python", "-c", command)
    assert result.returncode == 0, result.stderr
    assert recorded_runs(copy) == before
    success.evaluate_tick(dg.build_sensor_context(opened, cursor=cursor))
    (run,) = set(recorded_runs(copy)) - set(before)
    (row,) = [row for row in outcomes(copy) if row.dagster_run == run]
    assert (row.asset, row.status) == ("delphi/recipe", "succeeded")


def test_a_run_that_finds_everything_there_records_nothing(copy: LabEnvironment) -> None:
    before = recorded_runs(copy)
    assert copy.materialize("delphi/recipe").returncode == 0
    assert recorded_runs(copy) == before
    assert instance(copy).get_runs(limit=1)[0].tags[run_tags.RECORDED] == "nothing to record"


def test_a_record_that_cannot_be_written_hides_nothing_of_the_run(copy: LabEnvironment) -> None:
    shutil.rmtree(copy.store / "delphi" / "recipe")
    shutil.rmtree(copy.store / "records")
    (copy.store / "records").write_text("in the way")
    result = copy.materialize("delphi/recipe")
    assert result.returncode == 0, result.stderr
    assert "what runs came to is not all recorded yet" in result.stderr
    (copy.store / "records").unlink()
    # Once it can be written, the next command makes up for it.
    assert copy.materialize("delphi/recipe").returncode == 0
    assert [row.asset for row in outcomes(copy)] == ["delphi/recipe"]


def test_all_outcomes_in_one_table(lab: LabEnvironment) -> None:
    known = outcomes(lab)
    result = lab.materialize("records/outcomes")
    assert result.returncode == 0, result.stderr
    (table,) = Store(str(lab.store)).records(TABLE)
    assert (table.summary["records"], table.summary["failed"]) == (len(known), 3)
    assert outcomes(lab) == known
    # Its own materialization is no news, or the table would be out of date as soon as it is there.
    assert lab.materialize("records/outcomes").returncode == 0
    assert len(Store(str(lab.store)).records(TABLE)) == 1


def test_runs_of_others_are_left_alone(tmp_path: Path) -> None:
    @dg.asset
    def of_somebody_else() -> None:
        raise RuntimeError

    with dg.DagsterInstance.ephemeral(str(tmp_path)) as opened:
        dg.materialize([of_somebody_else], instance=opened, raise_on_error=False)
        assert Recorder(str(tmp_path / "store"), frozenset({asset_key("delphi/suite")})).catch_up(opened) == []
    assert not (tmp_path / "store").exists()
