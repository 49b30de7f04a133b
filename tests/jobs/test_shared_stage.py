"""Ranks of a stage that were started apart, as the pods of an Indexed Job are: real processes, killed and failing."""

import contextlib
import functools
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from marin_core.data.sources.declaration import FolderOrigin, Layout, Source, UrlOrigin
from marin_core.jobs.messages import MessageReader
from marin_core.jobs.spec import EXIT_REFUSED, EXIT_TERMINATED
from marin_core.store import ArtifactSpec, Store
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow
FILES = 11


class StartPods(Protocol):
    def __call__(self, spec: ArtifactSpec, store: Store = ...) -> "Pods": ...


class Pods:
    """The processes of one job, each told its index as Kubernetes would."""

    def __init__(self, store: Store, spec: ArtifactSpec, folder: Path):
        self._store, self._plan, self._folder = store, store.save_plan(spec), folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, index: int, world: int, pod: str | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "marin_core.worker", "--store", self._store.root, "--plan", self._plan]
        command += ["--job", "shared", "--world", str(world), "--scratch", str(self._folder / "scratch")]
        with (self._folder / f"pod-{index}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, "JOB_COMPLETION_INDEX": str(index), "MARIN_POD": pod or f"pod-{index}"},
                stdout=log,
                stderr=log,
            )
        self.running.append(process)
        return process

    def start_two(self) -> list[int]:
        """Both pods of a job of two, the follower first and at its post before the leader begins; their exit codes."""
        seen = self.log(1).count("---")
        follower = self.start(1, 2)
        until(lambda: self.log(1).count("---") > seen)
        return [end(process) for process in (self.start(0, 2), follower)]

    def log(self, index: int) -> str:
        log = self._folder / f"pod-{index}.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:02d}.txt").write_text(f"document {number}\n" * 100)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture
def start_pods(store: Store, tmp_path: Path) -> Iterator[StartPods]:
    started: list[Pods] = []

    def start(spec: ArtifactSpec, store: Store = store) -> Pods:
        started.append(Pods(store, spec, tmp_path))
        return started[-1]

    yield start
    for process in [process for pods in started for process in pods.running]:
        process.kill()
        process.wait()


def raw(origin: FolderOrigin | UrlOrigin) -> ArtifactSpec:
    source = Source("notes", origin, "CC0-1.0", Layout("text"))
    config = {"source": "notes", "origin": source.origin.identity()}
    return ArtifactSpec("raw/notes", "acquire", "1", config, context={"source": source.to_json()})


def end(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=60)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_three_pods_write_what_one_writes(store: Store, texts: Path, start_pods: StartPods, tmp_path: Path) -> None:
    spec = raw(FolderOrigin(str(texts)))
    pods = start_pods(spec)
    # The leader is the last to come.
    assert [end(process) for process in [pods.start(index, 3) for index in (2, 1, 0)]] == [0, 0, 0]
    shared = store.artifact(spec).record
    # All three had a share, and only the leader tells.
    assert all(".txt" in pods.log(index) for index in range(3))
    events = MessageReader(store.objects, "shared", "pod-0").read()
    assert events.closed
    assert events.progress == {"phase": "fetch", "done": FILES, "items": FILES}
    assert MessageReader(store.objects, "shared", "pod-1").read().opened is None
    alone = Store(str(tmp_path / "alone"))
    assert end(start_pods(spec, alone).start(0, 1)) == 0
    assert alone.artifact(spec).record.files == shared.files


def test_killed_pods_come_back_and_the_bytes_are_the_same(
    store: Store, texts: Path, start_pods: StartPods, tmp_path: Path
) -> None:
    with gated_server(texts, "10.txt") as (url, gate):
        spec = raw(UrlOrigin(urls=tuple(f"{url}/{number:02d}.txt" for number in range(FILES))))
        pods = start_pods(spec)
        work = Path(store.url(spec)) / ".work"
        first = [pods.start(0, 2), pods.start(1, 2)]
        # All but the leader's last item, which the server keeps back.
        until(lambda: len(list(work.glob("done/fetch/*"))) == FILES - 1)
        for process in first:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert store.record(spec.name, spec.fingerprint) is None
        gate.set()
        # The follower takes the dead leader's announcement for what it is worth, and then the new leader's.
        follower = pods.start(1, 2)
        until(lambda: pods.log(1).count("phase fetch: rank 1 of 2") == 2)
        assert follower.poll() is None
        assert (end(pods.start(0, 2, "pod-0-again")), end(follower)) == (0, 0)
        record = store.artifact(spec).record
        assert record.provenance.retries == 1
        whole = Store(str(tmp_path / "whole"))
        assert end(start_pods(spec, whole).start(0, 1)) == 0
        assert whole.artifact(spec).record.files == record.files


@contextlib.contextmanager
def gated_server(folder: Path, gated: str) -> Iterator[tuple[str, threading.Event]]:
    """A web server of a folder that keeps one file back until the event is set."""
    gate = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(gated):
                gate.wait(60)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", gate
    finally:
        gate.set()
        server.shutdown()


def test_what_one_rank_finds_wrong_ends_all(store: Store, start_pods: StartPods, texts: Path) -> None:
    urls = [f"file://{texts}/{number:02d}.txt" for number in range(FILES)]
    spec = raw(UrlOrigin(urls=tuple(urls)))
    pods = start_pods(spec)
    (texts / "07.txt").unlink()
    assert pods.start_two() == [EXIT_REFUSED, EXIT_REFUSED]
    for index in (0, 1):
        events = MessageReader(store.objects, "shared", f"pod-{index}").read()
        assert events.failed is not None
        assert "07.txt" in events.failed
        assert "\n" not in events.failed
    told = MessageReader(store.objects, "shared", "pod-0").read().failed
    assert told is not None
    assert "phase fetch, rank 1: " in told
    assert store.record(spec.name, spec.fingerprint) is None


def test_pods_of_a_job_that_failed_before_do_not_end_with_its_error(
    store: Store, start_pods: StartPods, texts: Path
) -> None:
    spec = raw(FolderOrigin(str(texts)))
    kept = (texts / "03.txt").read_text()
    (texts / "03.txt").write_text("another document")
    pods = start_pods(spec)
    assert pods.start_two() == [EXIT_REFUSED, EXIT_REFUSED]
    assert "have changed" in pods.log(1)
    (texts / "03.txt").write_text(kept)
    assert pods.start_two() == [0, 0]


def test_sigterm_ends_a_rank_and_its_successor_needs_not_wait(store: Store, start_pods: StartPods, texts: Path) -> None:
    spec = raw(FolderOrigin(str(texts)))
    pods = start_pods(spec)
    leader = pods.start(0, 2)
    # There is no second rank, for which the leader waits before the next phase.
    until(lambda: list((Path(store.url(spec)) / ".work").glob("done/list/*")))
    leader.send_signal(signal.SIGTERM)
    assert end(leader) == EXIT_TERMINATED
    assert MessageReader(store.objects, "shared", "pod-0").read().closed
    began = time.monotonic()
    assert [end(process) for process in [pods.start(index, 2) for index in (0, 1)]] == [0, 0]
    assert time.monotonic() - began < 30


def test_a_task_without_items_is_refused(store: Store, start_pods: StartPods) -> None:
    spec = ArtifactSpec("tokenizer/none", "train_tokenizer", "2", {"vocab_size": 300, "sample_bytes": 10})
    pods = start_pods(spec)
    assert end(pods.start(0, 2)) == EXIT_REFUSED
    assert "has no items to share" in pods.log(0)
