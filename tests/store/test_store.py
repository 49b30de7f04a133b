"""Artifacts: nothing exists before its record, attempts are cleared or resumed, and content decides what is current."""

import dataclasses
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from fsspec.core import url_to_fs

from marin_core.build import Build, BuildOptions, Outcome, build
from marin_core.errors import MarinError
from marin_core.store import ArtifactRecord, ArtifactSpec, InputEntry, LeaseLost, Store, StoreError
from marin_core.store import lease as lease_module
from marin_core.tasks import TASKS

RAW = ArtifactSpec("raw/code", "read_source", "1", {"max_bytes": 1000})
CURATED = ArtifactSpec("curated/code", "curate", "1", {"source": "code"}, {"raw": RAW})
WRITE_UNTIL_KILLED = """
import json, sys, time
from marin_core.store import ArtifactSpec, Store
with Store(sys.argv[1]).writer(ArtifactSpec.from_json(json.loads(sys.argv[2])), resumable=True) as writer:
    writer.write_json("checkpoints/half.json", [1])
    print("written", flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True)
class FunctionTask:
    """An entry of the table of tasks that is a function of the test."""

    function: Callable[[Build], Outcome]
    resumable: bool = False

    def load(self) -> Callable[[Build], Outcome]:
        return self.function


@pytest.fixture
def store(root: str) -> Store:
    return Store(root)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_an_artifact_does_not_exist_before_its_record(store: Store) -> None:
    with store.writer(RAW) as writer:
        writer.write_json("numbers.json", [1])
        assert store.record(RAW.name, RAW.fingerprint) is None
        assert store.current(RAW) is None
        assert store.records(RAW.name) == []
        with pytest.raises(StoreError, match=rf"raw/code \({RAW.fingerprint}\) is not in the store .*materialize"):
            store.artifact(RAW)


def test_an_artifact_reads_back_through_its_record(store: Store) -> None:
    record = commit(store, RAW, {"a/numbers.json": b"[1, 2]"}, {"documents": 2})
    artifact = store.artifact(RAW)
    assert artifact.record == record == store.current(RAW)
    assert artifact.read_json("a/numbers.json") == [1, 2]
    assert (record.payload, record.summary) == (RAW.payload, {"documents": 2})


def test_a_record_holds_size_and_hash_of_every_file(store: Store) -> None:
    files = {"b.bin": bytes(range(256)), "a/empty": b"", "a/text": b"text"}
    record = commit(store, RAW, files)
    assert {file.path: (file.size, file.sha256) for file in record.files} == {
        path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()
    }
    assert record.size == 260


def test_an_uncommitted_build_leaves_no_artifact_and_frees_its_lease(store: Store) -> None:
    with pytest.raises(RuntimeError, match="the task failed"), store.writer(RAW) as writer:
        writer.write_json("numbers.json", [1])
        raise RuntimeError("the task failed")
    assert store.record(RAW.name, RAW.fingerprint) is None
    assert commit(store, RAW, {"a": b"1"}) == store.current(RAW)


def test_a_later_writer_of_the_same_spec_sees_what_was_committed(store: Store) -> None:
    record = commit(store, RAW, {"a": b"1"})
    with store.writer(RAW) as writer:
        assert writer.committed == record
    assert store.artifact(RAW).open("a").read() == b"1"


def test_a_writer_that_waited_sees_what_was_committed_meanwhile(store: Store) -> None:
    is_waiting = threading.Event()

    def second() -> ArtifactRecord | None:
        with store.writer(RAW, on_wait=lambda holder: is_waiting.set()) as writer:
            return writer.committed

    with ThreadPoolExecutor(1) as pool:
        with store.writer(RAW) as writer:
            waiting = pool.submit(second)
            assert is_waiting.wait(10)
            record = writer.commit({})
        assert waiting.result(timeout=10) == record


def test_a_writer_whose_lease_was_taken_while_it_wrote_is_refused(store: Store) -> None:
    with store.writer(RAW) as first:
        with first.open("numbers.json") as file:
            file.write(b"[1]")
            give_up(store, RAW)
            with store.writer(RAW) as second:
                second.write_json("numbers.json", [2])
                record = second.commit({"documents": 2})
        with pytest.raises(LeaseLost, match="was lost"):
            first.commit({"documents": 1})
    assert store.current(RAW) == record
    assert record.summary == {"documents": 2}


def test_success_is_recorded_once_while_heartbeats_and_releases_overlap(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_SECONDS", 0.0005)

    def attempt(_: int) -> ArtifactRecord | None:
        with store.writer(RAW) as writer:
            if writer.committed is not None:
                return None
            writer.write_json("numbers.json", [1])
            return writer.commit({})

    with ThreadPoolExecutor(3) as pool:
        committed = [record for record in pool.map(attempt, range(3)) if record]
    assert committed == [store.current(RAW)]
    lease = store.objects.read(f"{RAW.name}/{RAW.fingerprint}.lease")
    assert lease is not None
    assert {name: json.loads(lease.data)[name] for name in ("token", "renewed")} == {"token": 3, "renewed": 0.0}


@pytest.mark.parametrize("resumable", [False, True])
def test_what_a_killed_attempt_left_is_cleared_or_resumed(store: Store, resumable: bool) -> None:
    command = [sys.executable, "-c", WRITE_UNTIL_KILLED, store.root, json.dumps(RAW.to_json())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
        finally:
            process.kill()
    assert store.record(RAW.name, RAW.fingerprint) is None
    with store.writer(RAW, resumable=resumable) as writer:
        record = writer.commit({})
    assert [file.path for file in record.files] == (["checkpoints/half.json"] if resumable else [])


def test_a_dependent_is_not_current_once_its_input_says_something_else(store: Store) -> None:
    commit(store, RAW, {"a": b"1"})
    record = commit(store, CURATED, {"b": b"2"})
    rebuild(store, RAW, {"a": b"other"})
    assert store.rebuilt_inputs(record) == ["raw"]
    assert store.current(CURATED) is None
    assert store.record(CURATED.name, CURATED.fingerprint) == record


def test_many_are_looked_up_as_one_is_with_each_record_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [dataclasses.replace(CURATED, config={"source": name}) for name in ("one", "two", "never built")]
    commit(store, RAW, {"a": b"1"})
    for spec in (CURATED, *others[:2]):
        commit(store, spec, {"b": b"2"})
    specs = [RAW, CURATED, *others]
    reads: list[tuple[str, str]] = []
    record = store.record
    monkeypatch.setattr(store, "record", lambda *key: (reads.append(key), record(*key))[1])
    found = store.all_current(specs)
    assert sorted(reads) == sorted((spec.name, spec.fingerprint) for spec in specs)
    assert found == {spec.fingerprint: store.current(spec) for spec in specs}
    assert [fingerprint for fingerprint, one in found.items() if one is None] == [others[2].fingerprint]
    rebuild(store, RAW, {"a": b"other"})
    assert list(store.all_current([CURATED, RAW]).values()) == [None, store.current(RAW)]


def test_a_dependent_stays_current_when_its_input_is_rebuilt_with_equal_content(store: Store) -> None:
    commit(store, RAW, {"a": b"1"})
    record = commit(store, CURATED, {"b": b"2"})
    rebuild(store, RAW, {"a": b"1"})
    assert store.current(CURATED) == record


def test_a_dependent_stays_current_when_its_input_is_deleted(store: Store) -> None:
    commit(store, RAW, {"a": b"1"})
    record = commit(store, CURATED, {"b": b"2"})
    store.objects.delete(f"{RAW.name}/{RAW.fingerprint}")
    assert store.current(CURATED) == record


def test_a_declared_content_digest_overrides_the_bytes(store: Store) -> None:
    commit(store, RAW, {"timings": b"1 s"}, content="the result")
    record = commit(store, CURATED, {"b": b"2"})
    rebuild(store, RAW, {"timings": b"2 s"}, content="the result")
    assert store.current(CURATED) == record


def test_what_is_no_longer_current_is_built_again_and_kept_as_history(store: Store) -> None:
    commit(store, RAW, {"a": b"1"})
    commit(store, CURATED, {"b": b"old", "c": b"left over"})
    rebuild(store, RAW, {"a": b"other"})
    record = commit(store, CURATED, {"b": b"new"})
    assert [file.path for file in record.files] == ["b"]
    assert store.current(CURATED) == record
    assert store.records(CURATED.name) == [record]
    assert len(list(store.objects.list(f"{CURATED.name}/superseded/"))) == 1


def test_a_resumable_build_does_not_resume_from_what_other_inputs_gave(store: Store) -> None:
    commit(store, RAW, {"a": b"1"})
    commit(store, CURATED, {"checkpoints/last": b"made from the old input"})
    rebuild(store, RAW, {"a": b"other"})
    with store.writer(CURATED, resumable=True) as writer:
        record = writer.commit({})
    assert record.files == ()


def test_a_record_names_the_input_that_was_there_when_the_build_began(store: Store) -> None:
    first = commit(store, RAW, {"a": b"1"})
    with store.writer(CURATED) as writer:
        rebuild(store, RAW, {"a": b"other"})
        record = writer.commit({})
    assert record.inputs == {"raw": InputEntry(RAW.name, RAW.fingerprint, first.content)}
    assert store.current(CURATED) is None


def test_records_of_a_name_are_listed_oldest_first(store: Store) -> None:
    specs = [ArtifactSpec("raw/code", "read_source", version) for version in ("1", "2", "3")]
    committed = {commit(store, spec, {"deep/artifact.json": b"{}"}).fingerprint for spec in specs}
    commit(store, ArtifactSpec("raw/code_two", "read_source", "1"), {})
    records = store.records("raw/code")
    assert {record.fingerprint for record in records} == committed
    ended = [record.provenance.ended for record in records]
    assert ended == sorted(ended)


def test_everything_is_what_is_committed_and_not_left_out(store: Store) -> None:
    assert store.everything() == []
    raw = commit(store, RAW, {"a": b"1", f"{'0' * 16}/artifact.json": b"{}", "deep/artifact.json": b"{}"})
    commit(store, CURATED, {"b": b"2"})
    nested = commit(store, ArtifactSpec("raw/code/python", "read_source", "1"), {"c": b"3"})
    commit(store, ArtifactSpec("records/site", "build_site", "1"), {"d": b"4"})
    with store.writer(dataclasses.replace(RAW, code_version="2")) as attempt:
        attempt.write_json("deep/artifact.json", {})
    rebuilt = rebuild(store, CURATED, {"b": b"5"})
    assert store.everything(without=("records/",)) == [rebuilt, raw, nested]
    assert {record.name for record in store.everything()} == {
        "raw/code",
        "raw/code/python",
        "curated/code",
        "records/site",
    }
    assert store.opened(raw).read("a") == b"1"


def test_a_record_that_vanishes_while_records_are_listed_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [ArtifactSpec("raw/code", "read_source", version) for version in ("1", "2")]
    records = [commit(store, spec, {}) for spec in specs]
    listed = list(store.objects.list("raw/code/"))
    store.objects.delete(f"{specs[0].name}/{specs[0].fingerprint}/artifact.json")
    monkeypatch.setattr(store.objects, "list", lambda prefix: iter(listed))
    assert store.records("raw/code") == records[1:]


def test_what_others_write_is_seen_after_a_listing(store: Store) -> None:
    with store.writer(RAW) as writer:
        writer.write_json("first.json", 1)
        folder = f"{RAW.name}/{RAW.fingerprint}"
        clients = [store.fs, url_to_fs(store.root)[0]]  # ours, and that of a library that opens URLs by itself
        before = [names(fs.ls(writer.url, detail=False)) for fs in clients]
        store.objects.delete(f"{folder}/first.json")
        store.objects.create(f"{folder}/second.json", b"22")
        after = [names(fs.ls(writer.url, detail=False)) for fs in clients]
        assert before == [{"first.json"}] * 2
        assert after == [{"second.json"}] * 2
        assert [fs.info(writer.path("second.json"))["size"] for fs in clients] == [2, 2]


def test_intermediate_files_are_listed_by_folder_and_read_together(store: Store) -> None:
    with store.writer(RAW) as writer:
        assert writer.list_work("done") == set()
        for path in ("done/1.json", "done/2.json", "other/3.json"):
            with writer.open_work(path) as file:
                file.write(path.encode())
        assert writer.list_work("done") == {"done/1.json", "done/2.json"}
        assert writer.read_work(["done/2.json", "done/4.json", "other/3.json"]) == {
            "done/2.json": b"done/2.json",
            "other/3.json": b"other/3.json",
        }


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"name": "raw/code", "inp', id="cut off"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"null", id="null"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b'{"inputs": [], "files": [], "provenance": {}}', id="list for an object"),
    ],
)
def test_a_damaged_record_is_a_one_line_error_with_a_remedy(store: Store, damaged: bytes) -> None:
    commit(store, RAW, {"a": b"1"})
    path = f"{RAW.name}/{RAW.fingerprint}/artifact.json"
    store.objects.delete(path)
    store.objects.create(path, damaged)
    with pytest.raises(StoreError) as refused:
        store.current(RAW)
    message = str(refused.value)
    assert "\n" not in message
    assert f"{store.root}/{path}" in message
    assert f"delete the folder {RAW.name}/{RAW.fingerprint}" in message


def test_a_file_that_is_gone_is_a_one_line_error_with_a_remedy(store: Store) -> None:
    commit(store, RAW, {"a": b"1"})
    store.objects.delete(f"{RAW.name}/{RAW.fingerprint}/a")
    artifact = store.artifact(RAW)
    for read in (artifact.read, artifact.open):
        with pytest.raises(StoreError, match=rf"^{artifact.url}/a is missing from a committed artifact; delete the"):
            read("a")


def test_a_root_that_cannot_be_written_is_named_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    root = str(tmp_path / "file" / "x")
    with pytest.raises(StoreError, match=rf"^store {root} is not writable: Not a directory; set MARIN_STORE to"):
        Store(root).check_writable()


def test_a_read_only_disk_is_named_with_the_cause(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match=rf"^store {small_disk}/store is not writable: Read-only file system; "):
        Store(str(small_disk / "store")).check_writable()


def test_checking_a_root_leaves_nothing_in_it(store: Store) -> None:
    store.check_writable()
    assert list(store.objects.list("")) == []


def test_a_task_is_built_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def write(job: Build) -> Outcome:
        calls.append(job.spec.label)
        job.writer.write_json("numbers.json", [1])
        return Outcome({"documents": 1})

    monkeypatch.setitem(TASKS, "read_source", FunctionTask(write))
    first = build(RAW, store, BuildOptions(tmp_path), print)
    assert build(RAW, store, BuildOptions(tmp_path), print) == first == store.current(RAW)
    assert calls == ["raw/code"]


def test_a_disk_that_fills_up_is_a_one_line_error_and_no_artifact(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(job: Build) -> Outcome:
        with job.writer.open("big.bin") as file:
            file.write(bytes(1_000_000))
        return Outcome({})

    monkeypatch.setitem(TASKS, "read_source", FunctionTask(fill_the_disk))
    store = Store(str(small_disk / "store"))
    with pytest.raises(MarinError, match=r"^raw/code: disk full while writing .*; free some space") as refused:
        build(RAW, store, BuildOptions(tmp_path), print)
    assert "\n" not in str(refused.value)
    assert store.record(RAW.name, RAW.fingerprint) is None


def test_a_disk_that_is_full_already_is_a_one_line_error(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "read_source", FunctionTask(lambda job: Outcome({})))
    with pytest.raises(OSError, match="No space left"), open(small_disk / "other.bin", "wb") as other:
        other.write(bytes(1_000_000))
    with pytest.raises(MarinError, match="disk full while writing"):
        build(RAW, Store(str(small_disk / "store")), BuildOptions(tmp_path), print)


def names(paths: Iterable[str]) -> set[str]:
    """Last parts of paths, without those of an attempt."""
    return {name for name in (path.rsplit("/", 1)[-1] for path in paths) if not name.startswith(".")}


def give_up(store: Store, spec: ArtifactSpec) -> None:
    """What the clock does to a lease that its holder cannot renew any more."""
    path = f"{spec.name}/{spec.fingerprint}.lease"
    lease = store.objects.read(path)
    assert lease is not None
    stale = json.dumps({**json.loads(lease.data), "renewed": 0.0}).encode()
    assert store.objects.replace(path, stale, lease.version)


def commit(
    store: Store,
    spec: ArtifactSpec,
    files: Mapping[str, bytes],
    summary: Mapping[str, int] | None = None,
    content: str | None = None,
) -> ArtifactRecord:
    """Build an artifact from the bytes of its files."""
    with store.writer(spec) as writer:
        assert writer.committed is None
        for path, data in files.items():
            with writer.open(path) as file:
                file.write(data)
        return writer.commit(summary or {}, content=content)


def rebuild(store: Store, spec: ArtifactSpec, files: Mapping[str, bytes], content: str | None = None) -> ArtifactRecord:
    """Delete an artifact, as a person would, and build it again."""
    store.objects.delete(f"{spec.name}/{spec.fingerprint}")
    return commit(store, spec, files, content=content)
