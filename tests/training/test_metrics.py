"""The record of a run outlives kills, on disk and where nothing can be appended to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_core.store import ArtifactSpec, Store, Writer
from marin_core.training.metrics import MetricsLog

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
