"""Raw artifacts: any origin becomes the same kind of folder, shared by ranks, resumed after a kill, equal anywhere."""

import gzip
import hashlib
import io
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pytest

from marin_core.data.sources.acquire import acquire_stage
from marin_core.data.sources.catalogue import parse_source
from marin_core.data.sources.declaration import Source
from marin_core.data.sources.patience import Patience
from marin_core.data.stages import counts_of, run_items, run_stage
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store, Workspace
from tests.data.hub_server import Dataset, Fault, HubServer, running

SPEC = ArtifactSpec("raw/test", "acquire", "1")
FILES = {f"data/{number}.jsonl": random.Random(number).randbytes(5_000) for number in range(5)}
PATIENCE = Patience(attempts=2, first_wait=0.01)
LAYOUT = {"format": "jsonl"}
HUB = parse_source(
    "test", {"dataset": "lab/texts", "revision": "main", "files": ["data/*"], "licence": "CC0", "layout": LAYOUT}
)
ACQUIRE = """
import sys
from marin_core.data.sources.acquire import acquire_stage
from marin_core.data.stages import run_stage
from marin_core.store import ArtifactSpec, Store
from tests.data.test_acquire import HUB, SPEC
with Store(sys.argv[1]).writer(SPEC, resumable=True) as writer:
    run_stage(acquire_stage(HUB, writer, print), writer)
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with running(HubServer({"lab/texts": Dataset({**FILES, "README.md": b"# Texts"})})) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def acquire(source: Source, store: Store, log: Callable[[str], None] = print) -> Artifact:
    with store.writer(SPEC, resumable=True) as writer:
        writer.commit(run_stage(acquire_stage(source, writer, log, PATIENCE), writer))
    return store.artifact(SPEC)


def contents(artifact: Artifact) -> dict[str, bytes]:
    """The files of an artifact, as its manifest names them, checked against it."""
    manifest = artifact.read_json("manifest.json")
    assert [file["path"] for file in manifest["files"]] == sorted(file["path"] for file in manifest["files"])
    assert {file.path for file in artifact.record.files} == {
        "manifest.json",
        *(file["path"] for file in manifest["files"]),
    }
    found = {}
    for file in manifest["files"]:
        data = found[file["path"]] = artifact.read(file["path"])
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    return found


def test_a_hub_dataset_becomes_its_files_at_a_commit(hub: HubServer, store: Store) -> None:
    raw = acquire(HUB, store)
    assert contents(raw) == {f"files/{path}": data for path, data in FILES.items()}
    manifest = raw.read_json("manifest.json")
    assert manifest["revision"] == Dataset({}).commit == raw.record.summary["revision"]
    assert manifest["files"][0]["origin"] == f"hf://datasets/lab/texts@{manifest['revision']}/data/0.jsonl"
    assert raw.record.summary == {"files": 5, "bytes": 25_000, "revision": manifest["revision"]}


def test_urls_become_files(hub: HubServer, store: Store) -> None:
    hub.web = {"a/1.jsonl": b'{"text": "1"}', "a/2.jsonl.gz": gzip.compress(b"{}"), "b.jsonl": b""}
    hub.web["paths"] = b"web/a/1.jsonl\nweb/a/2.jsonl.gz\nweb/b.jsonl\n"
    entry = {"listings": [f"{hub.url}/web/paths"], "base": hub.url, "containing": "/a/"}
    raw = acquire(parse_source("test", {**entry, "licence": "CC0", "layout": LAYOUT}), store)
    assert contents(raw) == {
        "files/web/a/1.jsonl": hub.web["a/1.jsonl"],
        "files/web/a/2.jsonl.gz": hub.web["a/2.jsonl.gz"],
    }
    assert raw.read_json("manifest.json")["files"][0]["origin"] == f"{hub.url}/web/a/1.jsonl"
    assert raw.read_json("manifest.json")["revision"] is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"web/a\nweb/../../../a\n", r"has the path 'web/\.\./\.\./\.\./a', which leads astray"),
        (b"web/a\nweb/a\n", "would both be 'web/a'; declare them as two sources"),
    ],
)
def test_a_listing_cannot_write_where_it_wants(hub: HubServer, store: Store, lines: bytes, message: str) -> None:
    hub.web["paths"] = lines
    entry = {"listings": [f"{hub.url}/web/paths"], "base": hub.url, "licence": "CC0", "layout": LAYOUT}
    with pytest.raises(MarinError, match=message):
        acquire(parse_source("test", entry), store)


def folder_source(folder: Path, **more: Any) -> Source:
    return parse_source("test", {"path": str(folder), "licence": "mine", "layout": LAYOUT, **more})


def test_a_folder_becomes_its_files_and_says_nothing_of_its_place(tmp_path: Path, store: Store) -> None:
    (tmp_path / "in #1 50%" / "deep").mkdir(parents=True)
    (tmp_path / "in #1 50%" / "deep" / "a b.jsonl").write_bytes(b"{}")
    (tmp_path / "in #1 50%" / "notes.txt").write_bytes(b"not this")
    raw = acquire(folder_source(tmp_path / "in #1 50%", files=["**/*.jsonl"]), store)
    assert contents(raw) == {"files/deep/a b.jsonl": b"{}"}
    assert raw.read_json("manifest.json")["files"][0]["origin"] is None
    assert str(tmp_path) not in raw.read("manifest.json").decode()


def test_a_folder_is_identified_by_its_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text("1")
    one, two = (folder_source(tmp_path / name) for name in ("one", "two"))
    assert one.origin.identity() == two.origin.identity()
    (tmp_path / "two" / "a.jsonl").write_text("22")
    assert one.origin.identity() != two.origin.identity()
    (tmp_path / "one" / "a.jsonl").rename(tmp_path / "one" / "b.jsonl")
    (tmp_path / "two" / "a.jsonl").write_text("1")
    assert one.origin.identity() != two.origin.identity()


@pytest.mark.parametrize(
    ("path", "files", "message"),
    [
        ("nothing", ["*"], "source folder .*nothing is not there"),
        (".", ["*.csv"], r"has 1 files and none matches \*\.csv"),
    ],
)
def test_a_folder_without_files_is_a_one_line_error(tmp_path: Path, path: str, files: list[str], message: str) -> None:
    (tmp_path / "a.jsonl").write_text("1")
    with pytest.raises(MarinError, match=message):
        folder_source(tmp_path / path, files=files).origin.identity()


def test_installed_text_becomes_one_table_with_the_layout_that_it_declares(store: Store) -> None:
    source = parse_source("prose", {"packages": ["optax"], "max_bytes": 100_000})
    raw = acquire(source, store)
    frame = pl.read_parquet(io.BytesIO(contents(raw)["files/documents.parquet"]))
    layout = source.layout
    assert set(frame.columns) == {layout.text_field, *layout.keep_fields, layout.licence_field}
    assert len(frame) == raw.record.summary["documents"] > 10
    assert raw.record.summary["licences"] == sorted(set(frame["licence"]))


def test_installed_text_without_documents_is_a_one_line_error(store: Store) -> None:
    with pytest.raises(MarinError, match="source 'math' has no documents: none of optax has text of kind 'math'"):
        acquire(parse_source("math", {"packages": ["optax"], "max_bytes": 100}), store)


@pytest.mark.parametrize("world", [1, 2, 7])
def test_the_number_of_ranks_changes_no_byte(hub: HubServer, tmp_path: Path, store: Store, world: int) -> None:
    alone = acquire(HUB, Store(str(tmp_path / "alone")))
    with store.writer(SPEC) as writer:
        stages = [acquire_stage(HUB, store.join(SPEC, writer.lease_token), print) for _ in range(world)]
        for phase in range(2):
            for rank in reversed(range(world)):
                run_items(stages[rank].phases[phase], writer, rank=rank, world=world)
        record = writer.commit(stages[0].finish([counts_of(phase, writer) for phase in stages[0].phases]))
    assert record.files == alone.record.files
    assert record.content == alone.record.content
    assert len(hub.requests_for("revision/main")) == 2  # once for each artifact, whatever the number of ranks


def test_a_remote_store_gets_the_same_files(hub: HubServer, store: Store) -> None:
    here = acquire(HUB, store)
    fs = fsspec.filesystem("memory")
    there = Workspace("memory://raw", fs, lambda: None)
    run_stage(acquire_stage(HUB, there, print), there)
    assert {file.path: fs.cat(f"memory://raw/{file.path}") for file in here.record.files} == {
        file.path: here.read(file.path) for file in here.record.files
    }


def test_files_that_have_arrived_are_not_fetched_again(hub: HubServer, store: Store) -> None:
    hub.faults["3.jsonl"] = [Fault(), Fault(cut_at=2_000), Fault(500), Fault(500)]
    with pytest.raises(MarinError, match=r"^data/3\.jsonl: .*Files that are complete are kept"):
        acquire(HUB, store)
    before = len(hub.seen)
    assert contents(acquire(HUB, store)) == {f"files/{path}": data for path, data in FILES.items()}
    asked = [(request.path.rsplit("/", 1)[1], request.range) for request in hub.seen[before:]]
    assert asked == [("3.jsonl", "bytes=2000-")] * 2 + [("4.jsonl", None)] * 2


def test_after_a_kill_in_the_middle_of_a_file_the_rest_arrives(hub: HubServer, store: Store) -> None:
    hub.faults["2.jsonl"] = [Fault(), Fault(stall_at=3_000)]
    process = subprocess.Popen([sys.executable, "-c", ACQUIRE, store.root])
    partial = Path(f"{store.url(SPEC)}/.work/partial/00002")
    deadline = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size == 3_000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(hub.seen)
    assert contents(acquire(HUB, store)) == {f"files/{path}": data for path, data in FILES.items()}
    asked = [(request.path.rsplit("/", 1)[1], request.range) for request in hub.seen[before:]]
    assert asked == [("2.jsonl", "bytes=3000-")] * 2 + [(name, None) for name in ("3.jsonl", "4.jsonl") for _ in "12"]


def test_nothing_is_left_of_the_download_but_the_artifact(hub: HubServer, store: Store, tmp_path: Path) -> None:
    acquire(HUB, store)
    assert not Path(f"{store.url(SPEC)}/.work").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_progress_is_told(hub: HubServer, store: Store) -> None:
    told: list[str] = []
    acquire(HUB, store, told.append)
    assert told[0] == f"raw/test: 5 files, 25.0 kB at {Dataset({}).commit}"
    assert told[1:] == [f"raw/test: data/{n}.jsonl, 5.0 kB in 0 s; file {n + 1} of 5" for n in range(5)]
