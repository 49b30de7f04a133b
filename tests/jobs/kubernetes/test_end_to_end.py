"""What a lab does on its cluster, through Dagster itself: the README's command with the profile `gke-smoke`, pods on a
real API server, artifacts in a bucket.

The models are those of `tiny.toml`, and the profile is otherwise as shipped. Its pods are processes of this machine.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pytest

from marin_core.graph import CHECKPOINTS
from marin_core.store import ArtifactRecord, Store
from tests.conftest import REPOSITORY, TINY_PROFILE, LabEnvironment
from tests.emulator import GcsEmulator
from tests.jobs.kubernetes.testbed import Cluster

pytestmark = pytest.mark.slow

MANAGED = "app.kubernetes.io/managed-by=marin-assets"
# The longest of the suite: there is time to disturb it.
CELL = "3.2e10-d0040"


@dataclass(frozen=True)
class ClusterLab(LabEnvironment):
    """A lab whose jobs are pods in a namespace of its own and whose store is a bucket."""

    namespace: str = ""
    root: str = ""
    outside: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, **self.outside, "MARIN_STORE": self.root}

    @property
    def contents(self) -> Store:
        return Store(self.root)

    def with_profile(self, name: str, text: str) -> "ClusterLab":
        """The same lab under a profile that changes this one."""
        profile = self.folder / f"{name}.toml"
        profile.write_text(f'extends = "{self.profile}"\n\n{text}')
        return replace(self, profile=profile)

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def lab(
    cluster: Cluster,
    gcs_emulator: GcsEmulator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterLab]:
    folder = tmp_path_factory.mktemp("cluster-lab")
    namespace = cluster.namespace("lab")
    env = {
        **gcs_emulator.variables,
        "JAX_COMPILATION_CACHE_DIR": str(REPOSITORY / ".marin" / "cache" / "jax"),
    }
    profile = folder / "lab.toml"
    profile.write_text(
        f"""
extends = ["gke-smoke", "{TINY_PROFILE}"]

[place]
data_ranks = 1
bucket_region = "us-central1"

[place.kubernetes]
namespace = "{namespace}"
image = "marin-worker"
region = "us-central1"
context = "testbed"
scratch = "{folder / "scratch"}"
termination_grace_seconds = 30
worker_command = ["{sys.executable}", "-m", "marin_core.worker"]

[place.kubernetes.env]
{"".join(f'{name} = "{value}"{chr(10)}' for name, value in env.items())}
"""
    )
    outside = {**gcs_emulator.variables, **cluster.variables}
    previous = {name: os.environ.get(name) for name in outside}
    os.environ.update(outside)
    yield ClusterLab(folder, profile, namespace, f"{gcs_emulator.root}/lab", outside)
    for name, value in previous.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def finished(lab: ClusterLab, cluster: Cluster) -> ClusterLab:
    """The lab after the literal command, one of whose training pods was evicted in the middle of its run."""
    evictor = Evictor(cluster, lab)
    evictor.start()
    result = lab.bash("dagster asset materialize --select delphi/*", timeout=900)
    output = result.stdout + result.stderr
    (lab.folder / "first-run.log").write_text(output)
    assert result.returncode == 0, output
    evictor.join(timeout=1)
    assert evictor.evicted, "no training pod lived long enough to be evicted"
    return lab


class Evictor(threading.Thread):
    """Waits for a training pod that has taken a few steps, and drains it as a node upgrade would."""

    def __init__(self, cluster: Cluster, lab: ClusterLab):
        super().__init__(daemon=True)
        self._cluster, self._lab = cluster, lab
        self.evicted: str | None = None

    def run(self) -> None:
        while self.evicted is None:
            for pod in pods(self._cluster, self._lab):
                if is_of(pod, CELL) and has_stepped(self._lab, pod):
                    evict(self._cluster, pod)
                    self.evicted = pod.metadata.name
            time.sleep(0.2)


def pods(cluster: Cluster, lab: ClusterLab) -> list[Any]:
    return cluster.core.list_namespaced_pod(lab.namespace, label_selector=MANAGED).items


def is_of(pod: Any, cell: str) -> bool:
    """Whether a pod trains a cell; its job's name begins with that of the artifact."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{CHECKPOINTS}-{cell}".lower())
    return pod.metadata.labels["marin/job"].startswith(f"{name}-")


def evict(cluster: Cluster, pod: Any) -> None:
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
    cluster.core.create_namespaced_pod_eviction(
        metadata["name"],
        metadata["namespace"],
        {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": metadata},
    )


def has_stepped(lab: ClusterLab, pod: Any) -> bool:
    """Whether the pod has told a step of its training."""
    job = pod.metadata.labels["marin/job"]
    prefix = f".jobs/{job}/{pod.metadata.name}/"
    chunks = [lab.contents.objects.read(path) for path, _ in lab.contents.objects.list(prefix)]
    return any(b'"step"' in chunk.data for chunk in chunks if chunk)


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s in vain")


def nothing_is_left(cluster: Cluster, lab: ClusterLab) -> bool:
    jobs = cluster.batch.list_namespaced_job(lab.namespace, label_selector=MANAGED).items
    sets = cluster.custom.list_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", lab.namespace, "jobsets")[
        "items"
    ]
    return not (jobs or sets or pods(cluster, lab))


def cells(store: Store) -> dict[str, ArtifactRecord]:
    return {str(record.partition): record for record in store.records(CHECKPOINTS)}


def created(cluster: Cluster, lab: ClusterLab, kind: str) -> list[str]:
    """Names of the objects that were created in the lab's namespace, from the API server's own log."""
    names = []
    for line in cluster.audit_log.read_text().splitlines():
        entry = json.loads(line)
        reference = entry.get("objectRef", {})
        wanted = ("create", kind, lab.namespace) == (
            entry["verb"],
            reference.get("resource"),
            reference.get("namespace"),
        )
        if wanted and entry["responseStatus"]["code"] == 201:
            names.append(reference.get("name", ""))
    return names


def test_the_suite_runs_as_pods_and_leaves_nothing(finished: ClusterLab, cluster: Cluster) -> None:
    store = finished.contents
    verdict = store.records("delphi/verdict")[0].summary
    assert verdict["actual_loss"] is not None
    assert "delphi" in json.dumps([record.provenance.command for record in store.records("delphi/suite")])
    assert wait_for(lambda: nothing_is_left(cluster, finished), 60)


def test_an_evicted_run_ends_bit_for_bit_as_the_undisturbed_one(
    finished: ClusterLab, finished_lab: LabEnvironment
) -> None:
    """The other lab ran the same suite as processes of this machine, with its store on the local disk."""
    here, there = cells(finished.contents), cells(Store(str(finished_lab.store)))
    assert here[CELL].provenance.retries == 1
    assert {cell: record.content for cell, record in here.items()} == {
        cell: record.content for cell, record in there.items()
    }


def test_the_eviction_is_told_and_spends_no_failure(finished: ClusterLab) -> None:
    log = (finished.folder / "first-run.log").read_text()
    told = r"preempted, retrying|was started again \(1 preemptions, 0 failures"
    assert re.search(rf"checkpoints/delphi \[{re.escape(CELL)}\]: ({told})", log)
    assert "failed, retrying" not in log


def test_a_second_run_trains_nothing(finished: ClusterLab, cluster: Cluster) -> None:
    before = created(cluster, finished, "jobs")
    result = finished.bash("dagster asset materialize --select delphi/*")
    assert result.returncode == 0, result.stdout + result.stderr
    assert created(cluster, finished, "jobs") == before


def test_a_run_worker_that_is_killed_finds_its_job_again(finished: ClusterLab, cluster: Cluster) -> None:
    other = finished.with_profile("killed", "[scale]\nseed = 1\n")
    command = ["dagster", "asset", "materialize", "--select", CHECKPOINTS, "--partition", CELL]
    before = len(created(cluster, other, "jobs"))
    first = other.start(*command)
    wait_for(lambda: any(has_stepped(other, pod) for pod in pods(cluster, other)))
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    second = other.run(*command)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "attached" in second.stdout + second.stderr
    assert len(created(cluster, other, "jobs")) == before + 1


def test_a_worker_that_always_crashes_fails_with_its_last_lines(finished: ClusterLab, cluster: Cluster) -> None:
    crash = ["sh", "-c", "echo loading the model; echo the accelerator is on fire; exit 3", "worker"]
    other = finished.with_profile(
        "crashing", f"[scale]\nseed = 2\n\n[place.kubernetes]\nworker_command = {json.dumps(crash)}\n"
    )
    result = other.materialize(CHECKPOINTS, "--partition", CELL)
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "the accelerator is on fire" in output
    assert "exit code 3" in output
    assert "Traceback" not in output
    assert wait_for(lambda: nothing_is_left(cluster, other), 60)


@pytest.mark.parametrize("how", ["Ctrl-C", "deleting the run"])
def test_why_a_pod_cannot_be_placed_is_said_and_cancelling_takes_it_away(
    finished: ClusterLab, cluster: Cluster, how: str
) -> None:
    other = finished.with_profile("unplaceable", '[scale]\nseed = 3\n\n[place]\nsuite_pool = "v5p-8"\n')
    run = other.start("dagster", "asset", "materialize", "--select", CHECKPOINTS, "--partition", CELL)
    assert run.stdout
    for line in run.stdout:
        if "no node pool with v5p-8 free" in line:
            break
    else:
        raise AssertionError("the run ended without saying why its pod waits")
    if how == "Ctrl-C":
        os.killpg(run.pid, signal.SIGINT)
    else:
        with dg.DagsterInstance.from_config(str(other.folder / "dagster")) as instance:
            instance.delete_run(instance.get_runs(limit=1)[0].run_id)
    run.communicate(timeout=60)
    assert wait_for(lambda: nothing_is_left(cluster, other), 60)


def test_two_processes_train_as_one_to_rounding(finished: ClusterLab, cluster: Cluster) -> None:
    """Data parallel in a gang of two pods; the run of one pod is set aside, since both are the same artifact."""
    store = finished.contents
    alone = next(record for record in store.records(CHECKPOINTS) if record.partition == CELL)
    store.objects.delete(f"{CHECKPOINTS}/{alone.fingerprint}")
    gang = finished.with_profile("gang", '[place]\nsuite_pool = "2xcpu-1"\neval_pool = "cpu-1"\n')
    result = gang.materialize(CHECKPOINTS, "--partition", CELL)
    assert result.returncode == 0, result.stdout + result.stderr
    together = finished.contents.record(CHECKPOINTS, alone.fingerprint)
    assert together is not None
    assert created(cluster, gang, "jobsets")
    assert together.content != alone.content
    assert together.summary["eval_loss"] == pytest.approx(alone.summary["eval_loss"], rel=1e-5)
    assert wait_for(lambda: nothing_is_left(cluster, gang), 60)
