"""The record of a run outlives kills, on disk and where nothing can be appended to."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_core.recipes import NANO, TrainPlan
from marin_core.store import ArtifactSpec, Store, Writer
from marin_core.training.metrics import MetricsLog, RunMetrics

SPEC = ArtifactSpec("checkpoints/delphi", "train", "1")


@pytest.fixture(params=["local", "gcs"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    root = request.getfixturevalue("gcs_root") if request.param == "gcs" else str(tmp_path)
    with Store(root).writer(SPEC, resumable=True) as writer:
        yield writer


def row(step: int, attempt: int = 1) -> dict[str, Any]:
    return {"step": step, "loss": 1.0 / (step + attempt)}


def run_until_killed(writer: Writer, steps: range, attempt: int = 1) -> None:
    """A run that saves after every second step, and forgets what it had not flushed."""
    log = MetricsLog(writer)
    log.load(up_to_step=steps.start - 1)
    for step in steps:
        log.append(row(step, attempt))
        if step % 2:
            log.flush()


def test_rows_up_to_the_last_checkpoint_are_there_after_a_kill(writer: Writer) -> None:
    run_until_killed(writer, range(7))
    assert MetricsLog(writer).load(up_to_step=5) == [row(step) for step in range(6)]


def test_rows_after_the_checkpoint_are_forgotten_for_good(writer: Writer) -> None:
    run_until_killed(writer, range(6))
    assert MetricsLog(writer).load(up_to_step=3) == [row(step) for step in range(4)]
    assert MetricsLog(writer).load(up_to_step=5) == [row(step) for step in range(4)]


def test_a_later_attempt_wins(writer: Writer) -> None:
    run_until_killed(writer, range(6))
    run_until_killed(writer, range(2, 6), attempt=2)
    expected = [row(0), row(1), *(row(step, attempt=2) for step in range(2, 6))]
    assert MetricsLog(writer).load(up_to_step=5) == expected


def test_a_kill_while_old_rows_are_removed_loses_none(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    run_until_killed(writer, range(6))
    remove = writer.fs.rm_file

    def killed(path: str) -> None:
        remove(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(writer.fs, "rm_file", killed)
        MetricsLog(writer).load(up_to_step=3)
    assert MetricsLog(writer).load(up_to_step=3) == [row(step) for step in range(4)]


def test_a_line_that_a_kill_cut_off_does_not_count(writer: Writer) -> None:
    run_until_killed(writer, range(2))
    with writer.open("metrics-9.jsonl") as file:
        file.write(b'{"step": 2, "loss": 0.')
    assert MetricsLog(writer).load(up_to_step=2) == [row(0), row(1)]


def test_nothing_is_left_of_rows_that_are_removed(writer: Writer) -> None:
    run_until_killed(writer, range(6))
    MetricsLog(writer).remove()
    assert writer.commit({}).files == ()


def test_evaluations_are_kept_as_the_rows_of_their_steps_are(writer: Writer) -> None:
    run_until_killed(writer, range(2))
    log = MetricsLog(writer)
    log.load(up_to_step=1)
    log.append({"step": 1, "evals": {"eval/loss": 2.0}})
    log.append(row(2))
    log.flush()
    assert MetricsLog(writer).load(up_to_step=1) == [row(0), row(1) | {"evals": {"eval/loss": 2.0}}]


def plan() -> TrainPlan:
    """Six steps, each second one evaluated."""
    made = TrainPlan.of(NANO, NANO.candidates(1e11)[0], eval_sequences=8)
    return dataclasses.replace(made, steps=6, steps_per_eval=2)


def run(writer: Writer, steps: range, evaluated: range) -> RunMetrics:
    """What Levanter tells of steps and evaluations, with what earlier attempts left."""
    log = MetricsLog(writer)
    metrics = RunMetrics(plan(), log, log.load(up_to_step=steps.start - 1))
    for step in steps:
        metrics.hear({"train/loss": 1.0 + step, "optim/learning_rate": 0.1, "optim/adam_lr": 0.2}, step)
        if step in evaluated:
            metrics.hear({"eval/loss": 2.0 + step, "eval/code/bpb": 0.5, "eval/loading_time": 9.0}, step)
    log.flush()
    return metrics


def test_an_evaluation_is_owed_of_the_last_recorded_step_only_and_only_once(writer: Writer) -> None:
    assert RunMetrics(plan()).owed_evaluation is None
    assert run(writer, range(2), range(0)).owed_evaluation == 1
    log = MetricsLog(writer)
    resumed = RunMetrics(plan(), log, log.load(up_to_step=1))
    assert resumed.owed_evaluation == 1
    # What Levanter says where no step is left to take.
    resumed.hear({"train/loss": 0.0}, 1)
    resumed.hear({"eval/loss": 3.0, "eval/code/bpb": 0.5}, 1)
    log.flush()
    assert resumed.owed_evaluation is None
    assert [row["loss"] for row in resumed.rows] == [1.0, 2.0]
    assert run(writer, range(2, 3), range(0)).owed_evaluation is None
    # The last step is evaluated by whoever resumes there.
    assert run(writer, range(3, 6), range(3, 4)).owed_evaluation is None
    assert run(writer, range(6, 6), range(0)).evaluations.keys() == {1, 3}


def test_a_finished_run_s_tables_stand_for_its_log(writer: Writer) -> None:
    metrics = run(writer, range(6), range(1, 6, 2))
    assert metrics.evals == {"eval/loss": 7.0, "eval/code/bpb": 0.5}
    assert metrics.evals_table().rows()[:2] == [(1, "eval/code/bpb", 0.5), (1, "eval/loss", 3.0)]
    for name, table in (("metrics.parquet", metrics.table()), ("evals.parquet", metrics.evals_table())):
        with writer.open(name) as file:
            table.write_parquet(file)
    MetricsLog(writer).remove()
    again = RunMetrics(plan(), rows=MetricsLog(writer).load(up_to_step=3))
    assert again.rows == metrics.rows[:4]
    assert again.evaluations == {step: metrics.evaluations[step] for step in (1, 3)}
