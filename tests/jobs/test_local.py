"""Jobs in real worker processes on this machine: warm, retried, cancelled, and clear about what went wrong."""

import importlib.metadata
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin_core.build import BuildOptions
from marin_core.data.sources.declaration import INSTALLED_LAYOUT, InstalledOrigin, Source
from marin_core.errors import MarinError
from marin_core.jobs import FailureClass, JobHandle, JobSpec, JobState, JobStatus, LocalLauncher, follow
from marin_core.jobs.local import pool_threads
from marin_core.store import ArtifactSpec, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture
def launcher(store: Store, tmp_path: Path) -> Iterator[LocalLauncher]:
    opened = LocalLauncher(store, tmp_path / "state", BuildOptions(tmp_path / "scratch"), cores=1)
    yield opened
    opened.close()


def raw(package: str, max_bytes: int = 50_000) -> ArtifactSpec:
    origin = InstalledOrigin("python", (package,), max_bytes)
    source = Source("code", origin, "MIT", INSTALLED_LAYOUT)
    identity = {"content": "python", "packages": {package: version(package)}, "max_bytes": max_bytes}
    config = {"source": "code", "origin": identity}
    return ArtifactSpec(f"raw/{package}", "acquire", "1", config, context={"source": source.to_json()})


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def worker_pids(store: Store) -> list[int]:
    found = subprocess.run(["pgrep", "-f", f"marin_core.worker --store {store.root} "], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def run(launcher: LocalLauncher, *jobs: JobSpec) -> list[JobStatus]:
    handles = [launcher.submit(job) for job in jobs]
    follow(handles, lambda handle, status: None)
    return [handle.status() for handle in handles]


def test_a_job_commits_its_artifact(launcher: LocalLauncher, store: Store) -> None:
    spec = raw("fsspec")
    (status,) = run(launcher, JobSpec(spec, ("cpu-1",)))
    assert status.state is JobState.SUCCEEDED
    assert store.artifact(spec).record.summary["documents"] > 0
    assert any("documents" in message for message in status.messages)


def test_one_warm_worker_gets_many_plans(launcher: LocalLauncher, tmp_path: Path) -> None:
    statuses = run(launcher, *(JobSpec(raw("fsspec", size), ("cpu-1",)) for size in (10_000, 20_000, 30_000)))
    assert {status.state for status in statuses} == {JobState.SUCCEEDED}
    assert len(list((tmp_path / "state" / "logs").iterdir())) == 1


def test_an_error_of_the_task_is_final_and_one_line(launcher: LocalLauncher, store: Store) -> None:
    spec = raw("no-such-package")
    (status,) = run(launcher, JobSpec(spec, ("cpu-1",)))
    assert status.state is JobState.FAILED
    assert status.reason.startswith("source package 'no-such-package' is not installed")
    assert "\n" not in status.reason
    assert status.failure is FailureClass.REFUSED
    assert status.retries == 0
    assert store.record(spec.name, spec.fingerprint) is None


def kill_on_start(store: Store, times: int) -> tuple[list[int], Callable[[JobHandle, JobStatus], None]]:
    """A follower that kills the job's worker as it starts, so many times."""
    killed: list[int] = []

    def on_change(handle: JobHandle, status: JobStatus) -> None:
        if status.state is JobState.STARTING and len(killed) < times:
            deadline = time.monotonic() + 10
            while not (pids := [p for p in worker_pids(store) if p not in killed]):
                assert time.monotonic() < deadline
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    return killed, on_change


def test_a_worker_that_is_killed_is_started_again(launcher: LocalLauncher, store: Store) -> None:
    killed, on_change = kill_on_start(store, times=1)
    handle = launcher.submit(JobSpec(raw("sqlalchemy", 5_000_000), ("cpu-1",)))
    follow([handle], on_change, poll_seconds=0.01)
    assert len(killed) == 1
    assert handle.status().state is JobState.SUCCEEDED
    assert handle.status().retries == 1
    assert store.artifact(handle.job.artifact).record.provenance.retries == 1


def test_a_job_that_may_not_fail_again_has_failed_and_names_the_log(launcher: LocalLauncher, store: Store) -> None:
    _, on_change = kill_on_start(store, times=1)
    handle = launcher.submit(JobSpec(raw("sqlalchemy", 5_000_000), ("cpu-1",), max_failures=0))
    follow([handle], on_change, poll_seconds=0.01)
    status = handle.status()
    assert status.state is JobState.FAILED
    assert "SIGKILL" in status.reason
    # Nobody was out of memory: something outside killed it.
    assert status.failure is FailureClass.INFRASTRUCTURE
    assert str(Path("logs", "worker-")) in status.reason


def test_an_interrupted_follower_leaves_no_worker_at_work(launcher: LocalLauncher, store: Store) -> None:
    handles = [launcher.submit(JobSpec(raw("sqlalchemy", 5_000_000 + i), ("cpu-1",))) for i in range(2)]

    def interrupt(handle: JobHandle, status: JobStatus) -> None:
        if status.state is JobState.STARTING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(handles, interrupt)
    deadline = time.monotonic() + 10
    while worker_pids(store) or not all(handle.status().state is JobState.CANCELLED for handle in handles):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert store.records("raw/sqlalchemy") == []


def test_the_same_work_has_the_same_name() -> None:
    assert JobSpec(raw("fsspec"), ("cpu-1",)).name == JobSpec(raw("fsspec"), ("cpu-2",)).name
    assert JobSpec(raw("fsspec"), ("cpu-1",)).name != JobSpec(raw("fsspec", 1), ("cpu-1",)).name


@pytest.mark.parametrize("pool", ["v5p-64", "cpu", "cpu-0", ""])
def test_a_pool_that_is_not_here_is_named(pool: str) -> None:
    with pytest.raises(MarinError, match="is not on this machine"):
        pool_threads(pool)
