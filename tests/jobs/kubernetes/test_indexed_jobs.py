"""On the cluster of the tests the pods of a Job have completion indexes, as on a current one."""

from typing import Any

import pytest

from tests.jobs.kubernetes.testbed import Cluster, until

pytestmark = pytest.mark.slow


def run(cluster: Cluster, namespace: str, name: str, script: str, pods: int) -> None:
    container = {"name": "worker", "image": "none", "command": ["sh", "-c", script]}
    template = {
        "metadata": {"labels": {"marin/job": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": template}
    cluster.batch.create_namespaced_job(namespace, {"metadata": {"name": name}, "spec": spec})


def pods_of(cluster: Cluster, namespace: str, name: str) -> list[Any]:
    return cluster.core.list_namespaced_pod(namespace, label_selector=f"job-name={name}").items


def indexes(pods: list[Any]) -> list[str]:
    return sorted(pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in pods)


def test_every_index_is_given_once(cluster: Cluster) -> None:
    namespace = cluster.namespace("indexed")
    run(cluster, namespace, "ranks", 'echo "$JOB_COMPLETION_INDEX"', 7)
    until(lambda: cluster.batch.read_namespaced_job("ranks", namespace).status.succeeded == 7)
    pods = pods_of(cluster, namespace, "ranks")
    assert indexes(pods) == list("0123456")
    for pod in pods:
        index = pod.metadata.labels["batch.kubernetes.io/job-completion-index"]
        log = cluster.core.read_namespaced_pod_log(pod.metadata.name, namespace, _preload_content=False).data.decode()
        assert log == f"{index}\n" and pod.metadata.name.startswith(f"ranks-{index}-")


def test_a_pod_in_place_of_another_has_its_index(cluster: Cluster) -> None:
    namespace = cluster.namespace("indexed")
    run(cluster, namespace, "replace", "sleep 60", 3)
    until(lambda: len([pod for pod in pods_of(cluster, namespace, "replace") if pod.status.phase == "Running"]) == 3)
    lost = next(pod for pod in pods_of(cluster, namespace, "replace") if pod.metadata.name.startswith("replace-1-"))
    cluster.core.delete_namespaced_pod(lost.metadata.name, namespace)
    until(lambda: lost.metadata.uid not in {pod.metadata.uid for pod in pods_of(cluster, namespace, "replace")})
    until(lambda: indexes(pods_of(cluster, namespace, "replace")) == ["0", "1", "2"])
    cluster.batch.delete_namespaced_job("replace", namespace, propagation_policy="Background")
