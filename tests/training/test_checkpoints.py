"""Which checkpoint a run resumes from, on disk and on Google Cloud Storage: the newest that can be read whole."""

import json
from pathlib import Path

import pytest
from fsspec.core import url_to_fs

from marin_core.errors import MarinError
from marin_core.store import Store
from marin_core.training.checkpoints import Checkpoint, checkpoint_to_resume


@pytest.fixture(params=["local", "gcs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    root = request.getfixturevalue("gcs_root") if request.param == "gcs" else str(tmp_path)
    return f"{Store(root).root}/checkpoints"


def save(folder: str, step: int, *, complete: bool = True, arrays: int = 20) -> str:
    """A checkpoint as Levanter lays it out: arrays in one OCDBT database, `metadata.json` last."""
    import tensorstore as ts

    url = f"{folder}/step-{step}"
    base = f"{url}/" if "://" in url else f"file://{url}/"
    database = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    for number in range(arrays):
        database.write(f"array/{number}/0", bytes(1000)).result()
    if complete:
        fs, path = url_to_fs(url)
        fs.pipe_file(f"{path}/metadata.json", json.dumps({"step": step}).encode())
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
