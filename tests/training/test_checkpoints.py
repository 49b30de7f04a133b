"""Which checkpoint a run resumes from, on disk and on Google Cloud Storage: the newest that can be read whole."""

import dataclasses
import json
from pathlib import Path

import pytest
from fsspec.core import url_to_fs

from marin_core.errors import MarinError
from marin_core.recipes import NANO, TrainPlan
from marin_core.store import Store
from marin_core.training.checkpoints import Checkpoint, checkpoint_to_resume, keep_only, permanent_steps


@pytest.fixture(params=["local", "gcs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    root = request.getfixturevalue("gcs_root") if request.param == "gcs" else str(tmp_path)
    return f"{Store(root).root}/checkpoints"


def save(folder: str, step: int, *, complete: bool = True, temporary: bool = False, arrays: int = 20) -> str:
    """A checkpoint as Levanter lays it out: arrays in one OCDBT database, `metadata.json` last."""
    import tensorstore as ts

    url = f"{folder}/step-{step}"
    base = f"{url}/" if "://" in url else f"file://{url}/"
    database = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    for number in range(arrays):
        database.write(f"array/{number}/0", bytes(1000)).result()
    if complete:
        fs, path = url_to_fs(url)
        fs.pipe_file(f"{path}/metadata.json", json.dumps({"step": step, "is_temporary": temporary}).encode())
    return url


def names(folder: str) -> list[str]:
    fs, path = url_to_fs(folder)
    return sorted(name.rsplit("/", 1)[-1] for name in fs.ls(path, detail=False))


def test_a_run_without_checkpoints_starts_at_the_beginning(folder: str) -> None:
    assert checkpoint_to_resume(url_to_fs(folder)[0], folder, print) is None


def test_the_newest_that_is_complete_is_taken_and_remains_are_removed(folder: str) -> None:
    for step in (5, 10, 100):
        save(folder, step)
    save(folder, 105, complete=False)
    found = checkpoint_to_resume(url_to_fs(folder)[0], folder, print)
    assert found == Checkpoint(f"{folder}/step-100", 100)
    assert names(folder) == ["step-10", "step-100", "step-5"]


def test_one_whose_arrays_are_gone_is_passed_over(folder: str) -> None:
    save(folder, 5)
    lacking = save(folder, 10)
    fs, path = url_to_fs(lacking)
    fs.rm(f"{path}/d", recursive=True)
    told: list[str] = []
    assert checkpoint_to_resume(fs, folder, told.append) == Checkpoint(f"{folder}/step-5", 5)
    assert len(told) == 1
    assert told[0].startswith(f"checkpoint {lacking} is unreadable")
    assert names(folder) == ["step-5"]


def test_a_run_does_not_start_anew_when_no_checkpoint_is_readable(folder: str) -> None:
    fs, path = url_to_fs(save(folder, 5))
    fs.rm(f"{path}/d", recursive=True)
    with pytest.raises(MarinError, match=rf"^none of the 1 checkpoints in {folder} is readable; delete that folder"):
        checkpoint_to_resume(fs, folder, print)
    assert names(folder) == ["step-5"]


def test_a_newer_temporary_checkpoint_wins_over_a_permanent_one_unless_it_is_damaged(folder: str) -> None:
    save(folder, 40)
    newer = save(folder, 46, temporary=True)
    fs, path = url_to_fs(newer)
    assert checkpoint_to_resume(fs, folder, print) == Checkpoint(newer, 46)
    fs.rm(f"{path}/d", recursive=True)
    assert checkpoint_to_resume(fs, folder, print) == Checkpoint(f"{folder}/step-40", 40)
    # And the other way round.
    save(folder, 60)
    assert checkpoint_to_resume(fs, folder, print) == Checkpoint(f"{folder}/step-60", 60)


def test_only_the_plan_s_checkpoints_are_kept(folder: str) -> None:
    for step in (5, 10, 15, 18):
        save(folder, step)
    fs, path = url_to_fs(folder)
    fs.pipe_file(f"{path}/eval_metrics.jsonl", b"{}")
    keep_only(fs, folder, permanent_steps(plan(steps=19, steps_per_checkpoint=10)))
    assert names(folder) == ["step-10", "step-18"]
    keep_only(fs, folder, [])
    assert not fs.exists(path) or names(folder) == []


@pytest.mark.parametrize(
    ("steps", "every", "kept"), [(19, 10, [10, 18]), (11, 10, [10]), (10, 10, [9]), (12, 5, [5, 10, 11]), (5, 10, [4])]
)
def test_permanent_are_every_so_many_steps_and_the_last(steps: int, every: int, kept: list[int]) -> None:
    assert permanent_steps(plan(steps=steps, steps_per_checkpoint=every)) == kept


def plan(**fields: int) -> TrainPlan:
    return dataclasses.replace(TrainPlan.of(NANO, NANO.candidates(1e11)[0], eval_sequences=8), **fields)
