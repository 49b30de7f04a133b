"""The JobSet controller of the tests does what JobSet's documentation says, with shell scripts as pods."""

from typing import Any

import pytest

from tests.jobs.kubernetes.testbed import Cluster, until

pytestmark = pytest.mark.slow

_DISRUPTED = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
_REFUSED = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [65]}}
_RESTART = {
    "name": "disrupted",
    "action": "RestartJobSetAndIgnoreMaxRestarts",
    "onJobFailureReasons": ["PodFailurePolicy"],
    "onJobFailureMessagePatterns": ["has condition DisruptionTarget "],
}
_FAIL = {"name": "refused", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}


@pytest.fixture(scope="module")
def sets(cluster: Cluster) -> "JobSets":
    return JobSets(cluster, cluster.namespace("jobsets"))


class JobSets:
    """JobSets of shell scripts in one namespace: two slices of two pods, unless told."""

    def __init__(self, cluster: Cluster, namespace: str):
        self.cluster, self.namespace = cluster, namespace
        self._api = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "namespace": namespace, "plural": "jobsets"}

    def create(self, name: str, script: str, slices: int = 2, **spec: Any) -> None:
        annotations = spec.pop("annotations", {})
        container = {"name": "worker", "image": "none", "command": ["sh", "-c", script]}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
        job = {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [_DISRUPTED, _REFUSED]},
            "template": {"metadata": {"annotations": annotations}, "spec": pod},
        }
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": {"maxRestarts": 1, "rules": [_RESTART, _FAIL]},
                "replicatedJobs": [{"name": "s", "replicas": slices, "template": {"spec": job}}],
                **spec,
            },
        }
        self.cluster.custom.create_namespaced_custom_object(**self._api, body=body)

    def status(self, name: str) -> dict[str, Any]:
        return self.cluster.custom.get_namespaced_custom_object(**self._api, name=name).get("status", {})

    def ended(self, name: str) -> tuple[str, str]:
        """Kind and reason of its last condition, once it is over."""
        until(lambda: self.status(name).get("terminalState"))
        condition = self.status(name)["conditions"][-1]
        return condition["type"], condition["reason"]

    def patch(self, name: str, spec: dict[str, Any]) -> None:
        self.cluster.custom.patch_namespaced_custom_object(**self._api, name=name, body={"spec": spec})

    def delete(self, name: str) -> None:
        self.cluster.custom.delete_namespaced_custom_object(**self._api, name=name, propagation_policy="Background")

    def log(self, pod: str) -> str:
        return self.cluster.core.read_namespaced_pod_log(pod, self.namespace, _preload_content=False).data.decode()

    def pods(self, name: str) -> list[Any]:
        selector = f"jobset.sigs.k8s.io/jobset-name={name}"
        return self.cluster.core.list_namespaced_pod(self.namespace, label_selector=selector).items


def test_pods_know_their_place_and_the_set_completes_with_them(sets: JobSets) -> None:
    script = 'echo "$JOB_COMPLETION_INDEX $FIRST"'
    sets.create("complete", f"FIRST=complete-s-0-0.complete:8476; {script}")
    assert sets.ended("complete") == ("Completed", "AllJobsCompleted")
    pods = {pod.spec.hostname: pod for pod in sets.pods("complete")}
    assert sorted(pods) == [f"complete-s-{job}-{index}" for job in (0, 1) for index in (0, 1)]
    assert pods["complete-s-1-0"].metadata.labels["jobset.sigs.k8s.io/job-index"] == "1"
    said = [sets.log(pod.metadata.name) for pod in pods.values()]
    assert sorted(line.split()[0] for line in said) == ["0", "0", "1", "1"]
    addresses = {line.split()[1] for line in said}
    assert len(addresses) == 1 and addresses.pop().startswith("127.0.0.1:")
    assert sets.status("complete")["replicatedJobsStatus"] == [
        {"name": "s", "active": 0, "ready": 2, "failed": 0, "succeeded": 2, "suspended": 0}
    ]


def test_a_failure_restarts_the_whole_set_as_often_as_it_may(sets: JobSets) -> None:
    sets.create("crash", '[ "$JOB_COMPLETION_INDEX" = 1 ] && exit 1; sleep 60', slices=1)
    assert sets.ended("crash") == ("Failed", "ReachedMaxRestarts")
    status = sets.status("crash")
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert "first failed job: crash-s-0" in status["conditions"][-1]["message"]
    # What is left of the last attempt ends with the set.
    until(lambda: all(pod.status.phase == "Failed" for pod in sets.pods("crash")))


def test_a_disruption_restarts_the_set_without_counting(sets: JobSets) -> None:
    sets.create("preempt", "sleep 60", slices=1, annotations={"testbed/fail-after-seconds": "0.5"})
    until(lambda: sets.status("preempt").get("restarts", 0) >= 2)
    status = sets.status("preempt")
    assert status["restartsCountTowardsMax"] == 0 and "terminalState" not in status
    attempt = "jobset.sigs.k8s.io/restart-attempt"
    until(lambda: max((int(pod.metadata.labels[attempt]) for pod in sets.pods("preempt")), default=0) >= 2)
    sets.delete("preempt")
    until(lambda: not sets.pods("preempt"))


def test_a_refusal_fails_the_set_at_once(sets: JobSets) -> None:
    sets.create("refuse", "exit 65", slices=1)
    assert sets.ended("refuse") == ("Failed", "FailJobSetFailurePolicyAction")
    assert sets.status("refuse").get("restarts", 0) == 0


def test_a_pod_that_somebody_deletes_has_failed(sets: JobSets) -> None:
    sets.create("lose", "sleep 60", slices=1)
    until(lambda: [pod.status.phase for pod in sets.pods("lose")] == ["Running"] * 2)
    sets.cluster.core.delete_namespaced_pod(sets.pods("lose")[0].metadata.name, sets.namespace)
    until(lambda: sets.status("lose").get("restartsCountTowardsMax") == 1)
    sets.delete("lose")


def test_a_suspended_set_has_no_pods_until_it_is_resumed(sets: JobSets) -> None:
    sets.create("queued", "true", slices=1, suspend=True)
    until(lambda: sets.status("queued").get("conditions"))
    assert sets.status("queued")["conditions"][0]["reason"] == "SuspendedJobs" and not sets.pods("queued")
    sets.patch("queued", {"suspend": False})
    assert sets.ended("queued") == ("Completed", "AllJobsCompleted")


def test_deleting_a_set_deletes_its_pods(sets: JobSets) -> None:
    sets.create("delete", "sleep 60")
    until(lambda: len(sets.pods("delete")) == 4)
    sets.delete("delete")
    until(lambda: not sets.pods("delete"))


def test_a_refused_pod_is_told_by_an_event(sets: JobSets) -> None:
    sets.cluster.core.create_namespaced_resource_quota(
        sets.namespace, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    )
    sets.create("refused-pods", "true", slices=1)

    def told() -> bool:
        events = sets.cluster.core.list_namespaced_event(sets.namespace).items
        return any(event.reason == "FailedCreate" and "exceeded quota" in event.message for event in events)

    until(told)
