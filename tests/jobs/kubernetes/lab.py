"""A lab on the test cluster: a store, a namespace of its own, a launcher, and jobs that do as they are told."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from marin_core.build import BuildOptions
from marin_core.jobs import JobHandle, JobSpec, JobState, JobStatus, follow, open_launcher
from marin_core.jobs.kubernetes.launcher import KubernetesLauncher
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.sight import MANAGED_BY, MANAGER
from marin_core.store import ArtifactSpec, Store
from tests.jobs.kubernetes import testbed

WORKER = Path(__file__).parent / "small_worker.py"
REPOSITORY = Path(__file__).parents[3]
OURS = f"{MANAGED_BY}={MANAGER}"


@dataclass
class Lab:
    """A store, a namespace of its own and a launcher on it."""

    folder: Path
    cluster: testbed.Cluster
    place: KubernetesPlace

    def __post_init__(self) -> None:
        self.store = Store(str(self.folder / "store"))
        self.launcher = self.open()

    def open(self, **place: Any) -> KubernetesLauncher:
        options = BuildOptions(self.folder / "scratch", dagster_run="run-1")
        opened = open_launcher(self.store, self.folder / "state", options, replace(self.place, **place))
        assert isinstance(opened, KubernetesLauncher)
        return opened

    def spec(self, *attempts: list, name: str = "work") -> ArtifactSpec:
        folder = self.folder / "attempts" / name
        folder.mkdir(parents=True, exist_ok=True)
        return ArtifactSpec(f"raw/{name}", "acquire", "1", {"folder": str(folder), "attempts": attempts})

    def job(self, *attempts: list, name: str = "work", pools: tuple[str, ...] = ("cpu-1",), **more: Any) -> JobSpec:
        return JobSpec(self.spec(*attempts, name=name), pools, **more)

    def run(self, job: JobSpec, launcher: KubernetesLauncher | None = None) -> tuple[JobHandle, list[JobStatus]]:
        """Follow a job to its end; every status it had."""
        handle, seen = (launcher or self.launcher).submit(job), []
        follow([handle], lambda _, status: seen.append(status))
        return handle, seen

    def left(self) -> list[str]:
        namespace = self.place.namespace
        jobs = self.cluster.batch.list_namespaced_job(namespace, label_selector=OURS).items
        pods = self.cluster.core.list_namespaced_pod(namespace, label_selector=OURS).items
        return [item.metadata.name for item in (*jobs, *pods)]

    def assert_nothing_is_left(self) -> None:
        # Deleting them is the cluster's work, which a loaded machine does when it comes to it.
        until(lambda: not self.left(), 60, lambda: self.left())


def until(met: Callable[[], object], seconds: float = 60, said: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)


@pytest.fixture
def lab(cluster: testbed.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    place = KubernetesPlace(
        namespace=cluster.namespace(),
        image="none",
        region="us-east5",
        context="testbed",
        termination_grace_seconds=2,
        worker_command=(sys.executable, str(WORKER)),
        env={"PYTHONPATH": str(REPOSITORY)},
        scratch=str(tmp_path / "scratch"),
    )
    made = Lab(tmp_path, cluster, place)
    yield made
    made.launcher.close()


def states(seen: list[JobStatus]) -> list[JobState]:
    return [status.state for status in seen]


def reason_of(handle: JobHandle, words: str) -> JobStatus:
    until(lambda: words in handle.status().reason, 30, lambda: handle.status())
    return handle.status()
