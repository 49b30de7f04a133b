"""The contract of an object store, held by every back end that runs here: exclusive create, compare-and-swap, list.

Google Cloud Storage is an emulator of the server. It ignores preconditions on delete and read, so none is tested.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin_core.errors import MarinError
from marin_core.store import ObjectStore, open_objects
from marin_core.store.conditional import ConditionalObjects

RACERS = 16


@pytest.fixture(params=["local", "memory", "gcs"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty object store of every kind."""
    if request.param == "gcs":
        return open_objects(request.getfixturevalue("gcs_root"))
    return ConditionalObjects("memory://") if request.param == "memory" else open_objects(str(tmp_path / "root"))


def test_what_was_never_written_is_not_there(objects: ObjectStore) -> None:
    assert objects.read("a/b.json") is None


def test_a_created_object_reads_back(objects: ObjectStore) -> None:
    assert objects.create("a/b.json", b"\x00one\xff")
    stored = objects.read("a/b.json")
    assert stored is not None
    assert stored.data == b"\x00one\xff"


def test_an_empty_object_is_an_object(objects: ObjectStore) -> None:
    assert objects.create("empty", b"")
    stored = objects.read("empty")
    assert stored is not None
    assert stored.data == b""


def test_create_is_exclusive(objects: ObjectStore) -> None:
    assert objects.create("a/b.json", b"first")
    assert not objects.create("a/b.json", b"second")
    assert _content(objects, "a/b.json") == b"first"


def test_create_is_free_again_after_a_delete(objects: ObjectStore) -> None:
    objects.create("a", b"first")
    objects.delete("a")
    assert objects.create("a", b"second")
    assert _content(objects, "a") == b"second"


def test_replace_swaps_the_version_that_was_read(objects: ObjectStore) -> None:
    objects.create("a", b"first")
    assert objects.replace("a", b"second", _version(objects, "a"))
    assert _content(objects, "a") == b"second"


def test_replace_refuses_an_older_version(objects: ObjectStore) -> None:
    objects.create("a", b"first")
    old = _version(objects, "a")
    objects.replace("a", b"second", old)
    assert not objects.replace("a", b"third", old)
    assert _content(objects, "a") == b"second"


def test_replace_refuses_what_was_deleted(objects: ObjectStore) -> None:
    objects.create("a", b"first")
    version = _version(objects, "a")
    objects.delete("a")
    assert not objects.replace("a", b"second", version)
    assert objects.read("a") is None


def test_list_gives_paths_and_sizes_below_a_prefix_in_order_of_path(objects: ObjectStore) -> None:
    for path in ("run/z.txt", "run/a/2.txt", "run/a/1.txt", "run/a-b/3.txt", "runs/other.txt", "top.txt"):
        objects.create(path, path.encode())
    expected = ["run/a-b/3.txt", "run/a/1.txt", "run/a/2.txt", "run/z.txt"]
    assert list(objects.list("run/")) == [(path, len(path)) for path in expected]


def test_nothing_is_below_an_unused_prefix(objects: ObjectStore) -> None:
    objects.create("a/b", b"")
    assert list(objects.list("b/")) == []


def test_delete_removes_everything_below_a_prefix_and_nothing_beside_it(objects: ObjectStore) -> None:
    for path in ("run/a/1", "run/a/b/2", "run/ab", "other"):
        objects.create(path, b"")
    objects.delete("run/a")
    assert [path for path, _ in objects.list("run/")] == ["run/ab"]
    assert objects.read("other") is not None


def test_deleting_what_is_absent_is_fine(objects: ObjectStore) -> None:
    objects.delete("a/b")
    assert objects.read("a/b") is None


def test_listing_and_deleting_go_on_after_a_page(gcs_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from marin_core.store import gcs

    monkeypatch.setattr(gcs, "_PAGE", 3)
    objects = open_objects(gcs_root)
    paths = [f"many/{number}" for number in range(8)]
    for path in paths:
        objects.create(path, b"x")
    assert list(objects.list("many/")) == [(path, 1) for path in paths]
    objects.delete("many")
    assert list(objects.list("many/")) == []


def test_an_object_that_vanishes_between_listing_and_reading_is_absent(objects: ObjectStore) -> None:
    for path in ("run/a", "run/b", "run/c"):
        objects.create(path, b"x")
    read = {}
    for path, _ in objects.list("run/"):
        objects.delete("run/b")
        read[path] = _content(objects, path)
    assert read.pop("run/b", None) is None
    assert read == {"run/a": b"x", "run/c": b"x"}


def test_one_of_many_racing_creates_wins(objects: ObjectStore) -> None:
    won = _race(lambda racer: objects.create("lease", str(racer).encode()))
    assert len(won) == 1
    assert _content(objects, "lease") == str(won[0]).encode()


def test_one_of_many_racing_replaces_wins(objects: ObjectStore) -> None:
    objects.create("lease", b"free")
    version = _version(objects, "lease")
    won = _race(lambda racer: objects.replace("lease", str(racer).encode(), version))
    assert len(won) == 1
    assert _content(objects, "lease") == str(won[0]).encode()


def test_an_object_on_disk_leaves_no_other_file_beside_it(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    objects.create("a/b", b"first")
    objects.create("a/b", b"second")
    objects.replace("a/b", b"third", "no such version")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_an_unknown_scheme_is_refused_with_what_to_use() -> None:
    with pytest.raises(MarinError, match=r"ftp://host/x.*unknown scheme 'ftp'; use a local path, gs://") as refused:
        open_objects("ftp://host/x")
    assert "\n" not in str(refused.value)


def _race(attempt: Callable[[int], bool]) -> list[int]:
    """The racers whose attempt succeeded, all having started at once."""
    start = threading.Barrier(RACERS)

    def run(racer: int) -> bool:
        start.wait()
        return attempt(racer)

    with ThreadPoolExecutor(RACERS) as pool:
        return [racer for racer, success in enumerate(pool.map(run, range(RACERS))) if success]


def _content(objects: ObjectStore, path: str) -> bytes | None:
    stored = objects.read(path)
    return stored and stored.data


def _version(objects: ObjectStore, path: str) -> str:
    stored = objects.read(path)
    assert stored is not None
    return stored.version
