"""What is created on the cluster: accepted by current API versions, complete, and the same for the same work."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from kubeflow_trainer_api import models

from marin_core.build import BuildOptions
from marin_core.errors import MarinError
from marin_core.jobs.kubernetes.manifests import manifest
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.pools import all_pools, parse_pool
from marin_core.jobs.spec import EXIT_PEERS_MISSING, EXIT_REFUSED, EXIT_TERMINATED, JobSpec
from marin_core.store import ArtifactSpec
from tests.jobs.kubernetes.jobset_rules import ChildJob, failure_action
from tests.jobs.kubernetes.testbed import Cluster, until

KUBERNETES_VERSION = "1.36"
PLACE = KubernetesPlace(
    namespace="lab",
    image="example.com/lab/worker@sha256:0123",
    region="us-east5",
    service_account="worker",
    env={"WANDB_PROJECT": "delphi"},
)
QUEUED = replace(PLACE, queue="tpus", priority_class="research")
OPTIONS = BuildOptions(
    scratch=Path("/elsewhere"),
    checkpoint_every_seconds=600.0,
    command="dagster asset materialize --select 'delphi/*' # $(HOME)",
    dagster_run="4f1c",
)

KINDS: dict[str, tuple[KubernetesPlace, dict[str, Any]]] = {
    "one TPU host": (PLACE, {"pools": ("v5p-8",)}),
    "TPU slice of many hosts": (PLACE, {"pools": ("v5p-64",)}),
    "several TPU slices": (PLACE, {"pools": ("4xv6e-256",)}),
    "GPU machine": (PLACE, {"pools": ("h100-8",)}),
    "several GPU machines": (PLACE, {"pools": ("2xh100-8",)}),
    "CPU": (PLACE, {"pools": ("cpu-4",)}),
    "several CPU machines": (PLACE, {"pools": ("2xcpu-1",)}),
    "ranks of a data stage": (PLACE, {"pools": ("cpu-16",), "ranks": 8}),
    "one host of a queue": (QUEUED, {"pools": ("v5p-8",)}),
    "slice of a queue": (QUEUED, {"pools": ("v5p-64",)}),
    "no spot nodes": (replace(PLACE, spot=False), {"pools": ("v5p-8",)}),
    "equal pools": (PLACE, {"pools": ("v4-8", "v5p-8")}),
    "equal slices": (PLACE, {"pools": ("v4-64", "v5p-64")}),
    "variables of a secret": (replace(PLACE, env_from_secret="wandb"), {"pools": ("v5p-64",)}),
    "no budget": (PLACE, {"pools": ("v5p-64",), "max_failures": 0}),
}


def job(pools: tuple[str, ...] = ("cpu-1",), **changes: Any) -> JobSpec:
    artifact = ArtifactSpec("checkpoints/delphi", "train", "2", {"steps": 100}, partition="3e18-d0512")
    return JobSpec(artifact, pools, **changes)


def made(pools: tuple[str, ...] = ("cpu-1",), place: KubernetesPlace = PLACE, **changes: Any) -> dict[str, Any]:
    return manifest(job(pools, **changes), place, store="gs://lab/store", plan=".plans/1.json", options=OPTIONS)


@pytest.fixture(params=KINDS)
def body(request: pytest.FixtureRequest) -> dict[str, Any]:
    place, changes = KINDS[request.param]
    return made(place=place, **changes)


def job_of(body: dict[str, Any]) -> dict[str, Any]:
    """The Job, or the one that a JobSet makes of each slice."""
    if body["kind"] == "Job":
        return body
    (slices,) = body["spec"]["replicatedJobs"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{body['metadata']['name']}-{slices['name']}-0", **slices["template"]["metadata"]},
        "spec": slices["template"]["spec"],
    }


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    return job_of(body)["spec"]["template"]["spec"]


def container_of(body: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod_of(body)["containers"]
    return container


def environment_of(body: dict[str, Any]) -> dict[str, str]:
    """Variables with a value of their own; those of the pod's metadata as the path of it."""
    return {
        variable["name"]: variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container_of(body)["env"]
    }


def options_of(body: dict[str, Any]) -> dict[str, str]:
    arguments = container_of(body)["args"]
    assert len(arguments) % 2 == 0
    return dict(zip(arguments[::2], arguments[1::2], strict=True))


def test_a_current_api_server_knows_every_field(body: dict[str, Any]) -> None:
    kubernetes_validate.validate(job_of(body), KUBERNETES_VERSION, strict=True)


def test_the_api_of_job_sets_knows_every_field() -> None:
    for place, changes in KINDS.values():
        body = made(place=place, **changes)
        if body["kind"] == "JobSet":
            parsed = models.JobsetV1alpha2JobSet.from_dict(body)
            assert parsed is not None and parsed.to_dict() == body


def test_one_pod_is_a_job_and_a_gang_is_a_job_set() -> None:
    kinds = {name: made(place=place, **changes)["kind"] for name, (place, changes) in KINDS.items()}
    gangs = ("TPU slice of many hosts", "several TPU slices", "several GPU machines", "several CPU machines")
    gangs = (*gangs, "slice of a queue", "equal slices", "no budget", "variables of a secret")
    assert {name for name, kind in kinds.items() if kind == "JobSet"} == set(gangs)


@pytest.mark.parametrize("name", [pool.name for pool in all_pools()] + ["4xv6e-256", "2xh100-8", "2xcpu-4"])
def test_pods_are_as_many_as_hosts_and_ask_for_all_their_chips(name: str) -> None:
    pool, body = parse_pool(name), made((name,))
    slices = body["spec"]["replicatedJobs"][0]["replicas"] if body["kind"] == "JobSet" else 1
    spec = job_of(body)["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert slices * spec["completions"] == pool.processes
    resources = container_of(body)["resources"]
    if pool.resource:
        # Beyond its limit a worker is killed for that; without one its node would evict it, as if it were disrupted.
        asked, most = (int(resources[kind]["memory"].removesuffix("Gi")) for kind in ("requests", "limits"))
        assert asked == pool.host_memory_gib // 2 < most < pool.host_memory_gib
        assert resources["limits"][pool.resource] == str(pool.chips_per_host)
        assert resources["requests"][pool.resource] == str(pool.chips_per_host)
        assert slices * spec["completions"] * pool.chips_per_host == pool.chips
        assert int(resources["requests"]["cpu"]) == max(1, pool.host_cpus // 2)


def test_a_cpu_pool_is_cores_and_a_limit_of_memory() -> None:
    assert container_of(made(("cpu-16",)))["resources"] == {
        "requests": {"cpu": "16", "memory": "64Gi"},
        "limits": {"memory": "64Gi"},
    }


def test_ranks_are_pods_of_one_job() -> None:
    body = made(("cpu-4",), ranks=8)
    assert (body["kind"], body["spec"]["completions"], body["spec"]["parallelism"]) == ("Job", 8, 8)
    assert options_of(body)["--world"] == "8"
    with pytest.raises(MarinError, match=r"8 ranks.*pool of one host"):
        made(("2xcpu-4",), ranks=8)


def test_the_worker_is_told_what_to_do() -> None:
    body = made(("v5p-64",))
    name = body["metadata"]["name"]
    assert container_of(body)["command"] == ["python", "-m", "marin_core.worker"]
    assert options_of(body) == {
        "--store": "gs://lab/store",
        "--plan": ".plans/1.json",
        "--job": name,
        "--processes": "8",
        "--hosts": "8",
        "--coordinator": f"{name}-s-0-0.{name}:8476",
        "--checkpoint-every-seconds": "600",
        # Two dollars are one: the kubelet leaves it alone.
        "--command": "dagster asset materialize --select 'delphi/*' # $$(HOME)",
        "--dagster-run": "4f1c",
        "--peak-flops": f"{32 * 459e12:g}",
        "--scratch": "/scratch",
    }
    assert "--peak-flops" not in options_of(made(("v4-8", "v5p-8"))) and "--coordinator" not in options_of(made())


@pytest.mark.parametrize("slices", [1, 2, 4])
def test_slices_find_each_other(slices: int) -> None:
    body = made((f"{slices}xv5p-64",))
    name, environment = body["metadata"]["name"], environment_of(body)
    index = "metadata.labels['jobset.sigs.k8s.io/job-index']"
    megascale = {key: value for key, value in environment.items() if key.startswith("MEGASCALE_")}
    assert megascale == (
        {}
        if slices == 1
        else {
            "MEGASCALE_COORDINATOR_ADDRESS": f"{name}-s-0-0.{name}",
            "MEGASCALE_NUM_SLICES": str(slices),
            "MEGASCALE_PORT": "8080",
            "MEGASCALE_SLICE_ID": index,
        }
    )
    assert environment["MARIN_SLICE"] == index
    ports = {port["containerPort"] for port in container_of(body)["ports"]}
    assert ports == ({8476} if slices == 1 else {8476, 8080})
    options = options_of(body)
    assert (options["--processes"], options["--hosts"]) == (str(8 * slices), "8")


def test_each_slice_has_a_node_pool_for_itself() -> None:
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert made(("v5p-64",))["metadata"]["annotations"][exclusive] == "cloud.google.com/gke-nodepool"
    assert exclusive not in made(("2xh100-8",))["metadata"]["annotations"]


@pytest.mark.parametrize(("budget", "spent", "left"), [(1, 0, 1), (3, 2, 1), (1, 5, 0), (0, 0, 0)])
def test_the_cluster_retries_failures_within_what_is_left(budget: int, spent: int, left: int) -> None:
    for pools in (("v5p-8",), ("v5p-64",)):
        spec = job(pools, max_failures=budget)
        body = manifest(spec, PLACE, store="s", plan="p", options=OPTIONS, preemptions=7, failures=spent)
        annotations = body["metadata"]["annotations"]
        assert (annotations["marin/preemptions"], annotations["marin/failures"]) == ("7", str(spent))
        if body["kind"] == "JobSet":
            assert body["spec"]["failurePolicy"]["maxRestarts"] == left
        else:
            assert body["spec"]["backoffLimit"] == left


def test_disruptions_and_refusals_are_told_from_failures() -> None:
    disrupted = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    refused = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [EXIT_REFUSED]}}
    outside = {"onExitCodes": {"operator": "In", "values": [EXIT_PEERS_MISSING, EXIT_TERMINATED]}}
    single, gang = made(("v5p-8",)), made(("v5p-64",))
    assert single["spec"]["podFailurePolicy"]["rules"] == [
        {"action": "Ignore", **disrupted},
        {"action": "Ignore", **outside},
        refused,
    ]
    child = job_of(gang)["spec"]
    assert child["podFailurePolicy"]["rules"] == [
        {"action": "FailJob", **disrupted},
        {"action": "FailJob", **outside},
        refused,
    ]
    assert child["backoffLimit"] == 0


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (EXIT_TERMINATED, "RestartJobSetAndIgnoreMaxRestarts"),
        (EXIT_PEERS_MISSING, "RestartJobSetAndIgnoreMaxRestarts"),
        (EXIT_REFUSED, "FailJobSet"),
        (1, "RestartJobSet"),
        (43, "RestartJobSet"),
    ],
)
def test_a_gang_counts_only_failures_of_its_own(code: int, action: str) -> None:
    body = made(("v5p-64",))
    status = {
        "phase": "Failed",
        "containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": code}}}],
    }
    pod = {"metadata": {"name": "x-s-0-3-abcde", "namespace": "lab"}, "status": status}
    failed = ChildJob("x-s-0", "s", 0, job_of(body)["spec"], {3: pod})
    assert failure_action(body, [failed]).name == action
    # JobSet compiles them as Go does; none has what only Python knows.
    for rule in body["spec"]["failurePolicy"]["rules"]:
        assert all(re.fullmatch(r"[\w ()|]+", text) for text in rule.get("onJobFailureMessagePatterns", ()))


def test_names_stay_within_63_characters() -> None:
    artifact = ArtifactSpec("checkpoints/a-name-longer-than-any-name-should-be", "train", "2", partition="3e18-d0512")
    longest = JobSpec(artifact, ("v5p-64",))
    body = manifest(longest, PLACE, store="s", plan="p", options=OPTIONS)
    name = body["metadata"]["name"]
    replicated = body["spec"]["replicatedJobs"][0]["name"]
    assert len(f"{name}-{replicated}-99-9999-abcde") <= 63
    assert len(options_of(body)["--coordinator"].split(".")[0]) <= 63
    assert all(len(value) <= 63 for value in body["metadata"]["labels"].values())


def test_a_queue_admits_it_whole() -> None:
    for pools in (("v5p-8",), ("v5p-64",)):
        queued, direct = made(pools, QUEUED), made(pools)
        assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "tpus" and queued["spec"]["suspend"]
        assert pod_of(queued)["priorityClassName"] == "research"
        assert "kueue.x-k8s.io/queue-name" not in direct["metadata"]["labels"] and "suspend" not in direct["spec"]


def test_accelerators_are_tainted_and_spot_is_asked_for() -> None:
    spot = "cloud.google.com/gke-spot"
    pod = pod_of(made(("v5p-8",)))
    assert pod["nodeSelector"] == {**parse_pool("v5p-8").node_selector, spot: "true"}
    assert {toleration["key"] for toleration in pod["tolerations"]} == {"google.com/tpu", spot}
    on_demand = pod_of(made(("v5p-8",), replace(PLACE, spot=False)))
    assert on_demand["nodeSelector"] == parse_pool("v5p-8").node_selector
    assert {toleration["key"] for toleration in on_demand["tolerations"]} == {"google.com/tpu"}
    assert {"nodeSelector", "tolerations"}.isdisjoint(pod_of(made(("cpu-4",))))


def test_equal_pools_are_alternatives() -> None:
    pod = pod_of(made(("v4-8", "v5p-8"), replace(PLACE, spot=False)))
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    alternatives = [
        {expression["key"]: expression["values"] for expression in term["matchExpressions"]}
        for term in affinity["nodeSelectorTerms"]
    ]
    assert alternatives == [
        {key: [value] for key, value in parse_pool(name).node_selector.items()} for name in ("v4-8", "v5p-8")
    ]
    assert "nodeSelector" not in pod
    with pytest.raises(MarinError, match=r"nothing keeps its 16 pods on one of them; name a Kueue queue"):
        made(("2xv4-64", "2xv5p-64"))
    assert made(("2xv4-64", "2xv5p-64"), QUEUED)["kind"] == "JobSet"


def test_a_pod_has_no_rights_that_it_does_not_need(body: dict[str, Any]) -> None:
    pod, container = pod_of(body), container_of(body)
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == ("worker", "Never")
    assert pod["terminationGracePeriodSeconds"] == PLACE.termination_grace_seconds


def test_what_is_written_goes_to_a_volume(body: dict[str, Any]) -> None:
    mounts = {mount["mountPath"]: mount["name"] for mount in container_of(body)["volumeMounts"]}
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod_of(body)["volumes"]}
    assert set(mounts) == {"/scratch", "/tmp", "/dev/shm"} and set(mounts.values()) == set(volumes)
    assert volumes[mounts["/dev/shm"]] == {"medium": "Memory"}
    environment = environment_of(body)
    for name in ("HOME", "MARIN_STATE", "JAX_COMPILATION_CACHE_DIR"):
        assert environment[name].startswith("/scratch")
    assert container_of(body)["workingDir"] == options_of(body)["--scratch"] == "/scratch"


def test_everything_of_a_job_is_found_by_its_labels(body: dict[str, Any]) -> None:
    labels = {
        "app.kubernetes.io/managed-by": "marin-assets",
        "marin/job": job().name,
        "marin/fingerprint": job().artifact.fingerprint,
    }
    pod = job_of(body)["spec"]["template"]["metadata"]
    for metadata in (body["metadata"], job_of(body)["metadata"], pod):
        assert labels.items() <= metadata["labels"].items()
    assert body["metadata"]["annotations"]["marin/artifact"] == "checkpoints/delphi [3e18-d0512]"
    assert body["metadata"]["annotations"]["marin/dagster-run"] == "4f1c"
    assert body["metadata"]["annotations"]["marin/store"] == "gs://lab/store"
    assert environment_of(body)["MARIN_POD"] == "metadata.name"


def test_the_same_work_is_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    first = json.dumps(made(("v5p-64",)))
    assert json.dumps(made(("v5p-64",))) == first
    # Nothing of the submitter's environment goes along.
    for name in ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR", "GLIBC_TUNABLES", "HOME"):
        monkeypatch.setenv(name, "of-the-submitter")
    assert json.dumps(made(("v5p-64",))) == first
    assert made(("cpu-1",))["metadata"]["name"] == made(("v5p-64",))["metadata"]["name"]


def test_each_kind_of_pool_has_its_platform() -> None:
    platforms = {name: environment_of(made((name,)))["JAX_PLATFORMS"] for name in ("cpu-1", "v5p-8", "h100-8")}
    assert platforms == {"cpu-1": "cpu", "v5p-8": "tpu,cpu", "h100-8": "cuda,cpu"}
    mine = replace(PLACE, env={"JAX_PLATFORMS": "tpu"}, scratch="/big")
    environment = environment_of(made(("v5p-8",), mine))
    assert (environment["JAX_PLATFORMS"], environment["HOME"]) == ("tpu", "/big")


def test_secrets_are_named_and_the_profile_has_the_last_word() -> None:
    body = made(place=replace(PLACE, env_from_secret="wandb"))
    assert container_of(body)["envFrom"] == [{"secretRef": {"name": "wandb"}}]
    # An API server prefers `env` where both have a name.
    assert environment_of(body) == environment_of(made())
    assert "envFrom" not in container_of(made())


@pytest.mark.slow
def test_a_pod_by_itself_is_not_taken_for_one_of_a_gang(tmp_path: Path) -> None:
    """JAX's own detection takes any pod for one of a gang, and fails without a token: Levanter must not ask it."""
    script = """
import jax
from jax._src import clusters, distributed
from levanter.distributed import DistributedConfig
found = {}
for environment in clusters.ClusterEnv._cluster_types:
    try:
        found[environment.__name__] = environment.is_env_present()
    except Exception as error:
        found[environment.__name__] = type(error).__name__
print(sorted((name, value) for name, value in found.items() if value))
DistributedConfig(initialize_jax_distributed=False).initialize()
print(distributed.global_state.client, jax.process_count(), jax.default_backend())
"""
    body = made(place=replace(PLACE, scratch=str(tmp_path)))
    variables = {**environment_of(body), "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**variables, "JOB_COMPLETION_INDEX": "0", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == ["[('K8sCluster', 'ConfigException')]", "None 1 cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_api_server_accepts_it(cluster: Cluster, kind: str) -> None:
    place, changes = KINDS[kind]
    body = made(place=replace(place, namespace="default"), **changes)
    if body["kind"] == "Job":
        kept = cluster.batch.create_namespaced_job("default", body, dry_run="All").to_dict()
        assert kept["spec"]["backoff_limit"] == body["spec"]["backoffLimit"]
    else:
        group, version = body["apiVersion"].split("/")
        kept = cluster.custom.create_namespaced_custom_object(group, version, "default", "jobsets", body, dry_run="All")
        assert kept["spec"] == body["spec"]


@pytest.mark.slow
def test_pods_of_a_gang_learn_who_they_are(cluster: Cluster) -> None:
    namespace = cluster.namespace("gang")
    script = 'echo "$MARIN_POD $MARIN_SLICE $JOB_COMPLETION_INDEX $*"'
    place = replace(PLACE, namespace=namespace, service_account=None, worker_command=("sh", "-c", script, "worker"))
    body = made(("2xcpu-1",), place)
    group, version = body["apiVersion"].split("/")
    cluster.custom.create_namespaced_custom_object(group, version, namespace, "jobsets", body)

    def finished() -> dict[str, Any]:
        job_set = cluster.custom.get_namespaced_custom_object(
            group, version, namespace, "jobsets", body["metadata"]["name"]
        )
        return job_set.get("status", {}).get("terminalState")

    until(finished)
    said = {}
    for pod in cluster.core.list_namespaced_pod(namespace).items:
        log = cluster.core.read_namespaced_pod_log(pod.metadata.name, namespace, _preload_content=False).data.decode()
        name, slice_index, index, *arguments = log.split()
        assert (name, slice_index) == (pod.metadata.name, "0")
        said[int(index)] = arguments
        assert arguments[arguments.index("--processes") + 1] == "2"
    assert sorted(said) == [0, 1] and said[0] == said[1]
