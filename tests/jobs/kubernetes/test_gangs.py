"""Gangs on a real API server: pods that live and die together are one attempt, whoever of them began it."""

from pathlib import Path
from typing import Any

import pytest

from marin_core.jobs import FailureClass, JobSpec, JobState, JobStatus, follow
from marin_core.jobs.kubernetes import lifecycle, objects
from marin_core.jobs.kubernetes.cluster import JOBSETS, Cluster
from tests.jobs.kubernetes.lab import OURS, Lab, lab, states, until

__all__ = ["lab"]

pytestmark = pytest.mark.slow

# Two slices of one host of four chips.
POOL = "2xv5e-4"


@pytest.fixture
def gang_lab(lab: Lab) -> Lab:
    """The node of the test cluster stands for two hosts."""
    size = {"google.com/tpu": "8", "cpu": "500", "memory": "2Ti"}
    lab.cluster.core.patch_node_status("tpu-0", {"status": {"capacity": size, "allocatable": size}})
    lab.launcher.close()
    lab.launcher = lab.open(spot=False)
    return lab


def run(lab: Lab, *attempts: list, **more: Any) -> tuple[JobSpec, JobStatus, list[JobStatus]]:
    job = lab.job(*attempts, pools=(POOL,), **more)
    handle, seen = lab.launcher.submit(job), []
    follow([handle], lambda _, status: seen.append(status))
    return job, handle.status(), seen


def assert_nothing_is_left(lab: Lab) -> None:
    lab.assert_nothing_is_left()
    # The garbage collector of this cluster knows of a new kind only after half a minute.
    until(lambda: not sets_of(lab), 120, lambda: sets_of(lab))


def sets_of(lab: Lab) -> list[str]:
    listed = lab.cluster.custom.list_namespaced_custom_object(
        "jobset.x-k8s.io", "v1alpha2", lab.place.namespace, "jobsets"
    )
    return [item["metadata"]["name"] for item in listed["items"]]


def test_a_gang_commits_once(gang_lab: Lab) -> None:
    job, status, seen = run(gang_lab, [["0:log", "hello"], ["sleep", 3], ["0:commit", 1]])
    assert status.state is JobState.SUCCEEDED, status
    assert (status.messages, status.retries) == (("hello",), 0)
    assert JobState.RUNNING in states(seen)
    assert gang_lab.store.current(job.artifact)
    assert_nothing_is_left(gang_lab)


def test_a_rank_that_crashes_restarts_its_gang_and_its_own_log_is_kept(gang_lab: Lab) -> None:
    _, status, seen = run(gang_lab, [["1:print", 5], ["1:exit", 7], ["sleep", 60]], [["sleep", 2], ["0:commit", 1]])
    assert (status.state, status.preemptions, status.failures) == (JobState.SUCCEEDED, 0, 1)
    reasons = [s.reason for s in seen if s.state is JobState.RETRYING]
    assert any("exit code 7" in reason and "-s-1-0-" in reason for reason in reasons), reasons
    assert any(s.log_tail[:5] == tuple(f"line {n}" for n in range(5)) for s in seen)


def test_a_gang_whose_rank_always_crashes_spends_its_budget(gang_lab: Lab) -> None:
    _, status, _ = run(gang_lab, [["1:print", 5], ["0:print", 3], ["1:exit", 7], ["sleep", 60]])
    assert (status.state, status.failure, status.failures) == (JobState.FAILED, FailureClass.APPLICATION, 1)
    assert "exit code 7" in status.reason
    assert status.log_tail[:5] == tuple(f"line {n}" for n in range(5))
    kept = Path(status.links["log"]).parent
    assert {"-s-0-0-", "-s-1-0-"} <= {name for name in ("-s-0-0-", "-s-1-0-") if list(kept.glob(f"*{name}*"))}
    assert_nothing_is_left(gang_lab)


def test_a_preempted_gang_spends_no_failure(gang_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    original = lifecycle.manifest

    def doomed(*arguments: Any, **options: Any) -> dict:
        body = original(*arguments, **options)
        template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        notes = {"testbed/fail-after-seconds": "4", "testbed/fail-reason": "Preempted"}
        template["metadata"]["annotations"] = notes
        return body

    monkeypatch.setattr(lifecycle, "manifest", doomed)
    _, status, _ = run(gang_lab, [["sleep", 60]], [["0:commit", 1]], max_failures=0)
    assert (status.state, status.preemptions, status.failures) == (JobState.SUCCEEDED, 1, 0)
    assert_nothing_is_left(gang_lab)


@pytest.mark.parametrize("code", [143, 75])
def test_an_end_from_outside_restarts_the_gang_without_counting(
    gang_lab: Lab, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """One pod is reclaimed, and all save and end: whoever of them is seen first, no restart is spent."""
    made: list[dict] = []
    original = lifecycle.manifest

    def counted(*arguments: Any, **options: Any) -> dict:
        made.append(original(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(lifecycle, "manifest", counted)
    acts = [["1:sleep", 1], ["1:exit", code], ["sleep", 60]]
    _, status, _ = run(gang_lab, acts, acts, [["0:commit", 1]], max_failures=0)
    assert status.state is JobState.SUCCEEDED, status
    # The cluster did not give it up.
    assert len(made) == 1


def test_a_gang_is_gone_only_after_its_pods(gang_lab: Lab) -> None:
    """What is left of it would be taken for failures of the next gang of that name."""
    launcher = gang_lab.open(spot=False, worker_command=("sh", "-c", "trap '' TERM; sleep 60 & wait; wait"))
    job = gang_lab.job([], pools=(POOL,))
    handle = launcher.submit(job)
    until(lambda: handle.status().state is JobState.RUNNING)
    assert objects.delete(Cluster(gang_lab.place), JOBSETS, gang_lab.place.namespace, job.name, seconds=40)
    pods = gang_lab.cluster.core.list_namespaced_pod(gang_lab.place.namespace, label_selector=OURS).items
    assert [pod.metadata.name for pod in pods] == []
    launcher.close()
