"""Ranks as real processes: the same bytes for any number of them, and a clear word when one fails or dies."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from marin_core.build import BuildOptions, build
from marin_core.data.sources.declaration import FolderOrigin, Layout, Source, UrlOrigin
from marin_core.data.stages import Progress
from marin_core.errors import MarinError
from marin_core.jobs.ranks import local_ranks
from marin_core.store import ArtifactRecord, ArtifactSpec, Store

FILES = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.txt").write_text(f"document {number}\n" * 100)
    return folder


def raw(origin: FolderOrigin | UrlOrigin) -> ArtifactSpec:
    source = Source("notes", origin, "CC0-1.0", Layout("text"))
    config = {"source": "notes", "origin": source.origin.identity()}
    return ArtifactSpec("raw/notes", "acquire", "1", config, context={"source": source.to_json()})


def acquire(store: Store, folder: Path, world: int) -> ArtifactRecord:
    spec, log = raw(FolderOrigin(str(folder))), list[str]()
    return build(
        spec, store, BuildOptions(folder), log.append, start_ranks=local_ranks(store, world, log.append, ignore)
    )


def ignore(progress: Progress) -> None:
    pass


def test_one_two_and_five_ranks_write_the_same_bytes(tmp_path: Path, folder: Path) -> None:
    records = [acquire(Store(str(tmp_path / f"{world} ranks")), folder, world) for world in (1, 2, 5)]
    assert len(records[0].files) == FILES + 1
    assert len({record.content for record in records}) == 1
    assert records[0].files == records[1].files == records[2].files


def test_what_a_rank_found_wrong_is_the_error(tmp_path: Path) -> None:
    spec = raw(UrlOrigin(urls=(f"file://{tmp_path}/gone.txt",)))
    store = Store(str(tmp_path / "store"))
    with pytest.raises(MarinError, match=r"^raw/notes, phase \w+: .*gone.txt") as refused:
        build(spec, store, BuildOptions(tmp_path), print, start_ranks=local_ranks(store, 2, print, ignore))
    assert "\n" not in str(refused.value)
    assert store.record(spec.name, spec.fingerprint) is None


def test_a_folder_that_changed_since_it_was_planned_is_not_taken_for_what_it_was(tmp_path: Path, folder: Path) -> None:
    spec = raw(FolderOrigin(str(folder)))
    (folder / "3.txt").write_text("another document")
    store = Store(str(tmp_path / "store"))
    with pytest.raises(MarinError, match="the files of source 'notes' have changed"):
        build(spec, store, BuildOptions(folder), print)


def test_a_killed_rank_is_an_error_and_the_next_attempt_goes_on(tmp_path: Path, folder: Path) -> None:
    (folder / "large.txt").write_bytes(b"x" * 1000)
    store = Store(str(tmp_path / "store"))
    killer = threading.Thread(target=kill_first_rank, args=(store,))
    killer.start()
    with pytest.raises(MarinError, match="rank 0 ended with exit code -9"):
        acquire(store, folder, 2)
    killer.join()
    again = acquire(store, folder, 2)
    assert again.content == acquire(Store(str(tmp_path / "whole")), folder, 1).content


def kill_first_rank(store: Store) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = subprocess.run(
            ["pgrep", "-f", "--", f"--store {store.root} .*--rank 0"], capture_output=True, text=True
        )
        if pids := found.stdout.split():
            os.kill(int(pids[0]), signal.SIGKILL)
            return
        time.sleep(0.01)
