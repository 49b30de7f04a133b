"""What following jobs costs: time to a pod, requests to the API server, bytes and CPU of the follower.

    MARIN_TESTBED=… python -m tests.benchmarks.jobs [--jobs 10 100 1000] [--seconds 60]

Boots the test cluster. The jobs that are followed pend, as most do on a busy cluster: their pool is larger than any
node. Requests are counted in the API server's own audit log.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from marin_core.build import BuildOptions
from marin_core.jobs import JobSpec, open_launcher
from marin_core.jobs.kubernetes.cluster import USER_AGENT
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.launcher import Launcher, cancel_all
from marin_core.store import ArtifactSpec, Store
from tests.jobs.kubernetes import testbed


@dataclass(frozen=True)
class Cost:
    """Of following `jobs` jobs for a minute. `seconds_to_pend` is until the last of them tells why it does not run; the
    cluster's own controllers take most of it. `cpu` in percent of a core, `received` in KiB."""

    jobs: int
    seconds_to_pend: float
    requests: float
    cpu: float
    received: float
    memory_mib: float


def first_pod_seconds(cluster: testbed.Cluster, launcher: Launcher, place: KubernetesPlace, times: int) -> list[float]:
    """From `submit` to the pod's creation, as a watch of the pods sees it."""
    from kubernetes import watch

    seconds = []
    for n in range(times):
        pods = watch.Watch().stream(cluster.core.list_namespaced_pod, place.namespace, timeout_seconds=30)
        began = time.perf_counter()
        handle = launcher.submit(job(f"first-{n}"))
        event: Any = next(pods)
        while event["object"].metadata.labels["marin/job"] != handle.job.name:
            event = next(pods)
        seconds.append(time.perf_counter() - began)
        handle.cancel()
    return seconds


def follow_pending(cluster: testbed.Cluster, launcher: Launcher, jobs: int, seconds: float) -> Cost:
    began = time.perf_counter()
    handles = [launcher.submit(job(f"pending-{jobs}-{n}")) for n in range(jobs)]
    while not all("no node pool" in handle.status().reason for handle in handles):
        time.sleep(0.5)
    submitted = time.perf_counter() - began
    # What submitting them left to do is not following them.
    time.sleep(5)
    offset, cpu, read = cluster.audit_log.stat().st_size, time.process_time(), received()
    time.sleep(seconds)
    minutes = seconds / 60
    cost = Cost(
        jobs=jobs,
        seconds_to_pend=submitted,
        requests=requests(cluster, offset).total() / minutes,
        cpu=100 * (time.process_time() - cpu) / seconds,
        received=(received() - read) / 1024 / minutes,
        memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
    cancel_all(handles)
    return cost


def job(name: str) -> JobSpec:
    return JobSpec(ArtifactSpec(f"raw/{name}", "acquire", "1", {"benchmark": os.getpid()}), ("cpu-512",))


def requests(cluster: testbed.Cluster, offset: int) -> Counter[str]:
    """Requests of followers since a place in the audit log."""
    with open(cluster.audit_log, "rb") as log:
        log.seek(offset)
        lines = [json.loads(line) for line in log.read().splitlines() if line.endswith(b"}")]
    # A watch is logged at its start and at its end, everything else at its end.
    ends = [r for r in lines if r["stage"] == ("ResponseStarted" if r["verb"] == "watch" else "ResponseComplete")]
    ours = [r for r in ends if r.get("userAgent") == USER_AGENT]
    return Counter(f"{r['verb']} {r.get('objectRef', {}).get('resource', r['requestURI'])}" for r in ours)


def received() -> int:
    """Bytes that this process has read, from the network above all."""
    return next(int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines() if "rchar" in line)


def table(costs: Sequence[Cost]) -> str:
    head = f"{'jobs':>6}  {'pending after ':>14}  {'requests/min':>12}  {'CPU %':>6}  {'KiB/min':>8}  {'peak MiB':>8}"
    rows = [
        f"{c.jobs:>6}  {c.seconds_to_pend:>14.1f}  {c.requests:>12.1f}  {c.cpu:>6.2f}  {c.received:>8.1f}"
        f"  {c.memory_mib:>8.0f}"
        for c in costs
    ]
    return "\n".join([head, *rows])


@click.command()
@click.option("--jobs", multiple=True, type=int, default=(10, 100, 1000), show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="How long each number of jobs is followed.")
def main(jobs: tuple[int, ...], seconds: float) -> None:
    scripts = os.environ.get("MARIN_TESTBED")
    if not scripts:
        sys.exit("no Kubernetes: set MARIN_TESTBED to the folder of the testbed's up.sh")
    with tempfile.TemporaryDirectory() as folder, testbed.boot(Path(scripts), Path(folder) / "testbed", 4) as cluster:
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
        place = KubernetesPlace(namespace=cluster.namespace(), image="none", region="us-east5", context="testbed")
        store = Store(str(Path(folder) / "store"))
        launcher = open_launcher(store, Path(folder) / "state", BuildOptions(Path(folder) / "scratch"), place)
        firsts = first_pod_seconds(cluster, launcher, place, times=5)
        print(f"from submit to the pod: {min(firsts):.2f} to {max(firsts):.2f} s of {len(firsts)}")
        print(table([follow_pending(cluster, launcher, number, seconds) for number in jobs]))
        launcher.close()


if __name__ == "__main__":
    main()
