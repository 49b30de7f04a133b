"""What becomes of raw objects of the API server: one state, one class of failure, and words to act on."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from marin_core.jobs.kubernetes.judge import Step, Verdict, judge
from marin_core.jobs.kubernetes.sight import Sight
from marin_core.jobs.spec import EXIT_REFUSED, EXIT_TERMINATED, FailureClass, JobState
from tests.jobs.kubernetes.raw import (
    NAME,
    NODE,
    NOW,
    TERMS,
    ago,
    condition,
    event,
    failed,
    job,
    pending,
    pod,
    sight,
)

UNSCHEDULABLE = condition("PodScheduled", "Unschedulable", "0/3 nodes are available: 3 node(s) didn't match.", "False")
DISRUPTED = condition("DisruptionTarget", "PreemptionByScheduler", "preempting to accommodate a higher priority pod")
NO_QUOTA = "couldn't assign flavors: insufficient quota for google.com/tpu"
OVER_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
COMPLETE = condition("Complete")
GAVE_UP = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", minutes=4)


def verdict(raw_job: dict | None, *pods: dict, **more) -> Verdict:
    return judge(sight(raw_job, *pods, **more), TERMS)


# What it waits for


@pytest.mark.parametrize(
    ("pods", "events", "words"),
    [
        (
            [pending(UNSCHEDULABLE, created=14)],
            [],
            "pending 14 min: no node pool with v5p-64 free in us-east5: 0/3 nodes are available: "
            "3 node(s) didn't match",
        ),
        (
            [pending(UNSCHEDULABLE, created=14)],
            [event("NotTriggerScaleUp", "pod didn't trigger scale-up: 2 max node group size reached")],
            "match; autoscaler: pod didn't trigger scale-up: 2 max node group size reached",
        ),
        (
            [pending(UNSCHEDULABLE, created=3)],
            [
                event("NotTriggerScaleUp", "pod didn't trigger scale-up", minutes=3),
                event("TriggeredScaleUp", "pod triggered scale-up: [{pool-1 0->1}]", minutes=1),
            ],
            "pending 3 min: the autoscaler is adding nodes for v5p-64 in us-east5 "
            "(pod triggered scale-up: [{pool-1 0->1}])",
        ),
        (
            [pending(condition("PodScheduled", "SchedulingGated", "blocked by gate x", "False"), created=3)],
            [],
            "pending 3 min: held back by a scheduling gate: blocked by gate x",
        ),
        (
            [],
            [event("FailedCreate", "pods is forbidden: exceeded quota: q, requested: cpu=4", NAME, "Job")],
            "pending 60 min: the namespace's ResourceQuota is full: pods is forbidden: exceeded quota: q",
        ),
        ([], [], "waiting 60 min for its pods to be created; is the controller of its kind running?"),
    ],
)
def test_a_job_that_no_node_takes_says_why_and_waits_on(pods: list, events: list, words: str) -> None:
    found = verdict(job(), *pods, events=tuple(events))
    assert (found.state, found.step, found.failure) == (JobState.QUEUED, Step.WAIT, None)
    assert words in found.reason


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (
            None,
            "Kueue has made no Workload of it: is the Kueue controller running, and is there a LocalQueue 'train' in",
        ),
        (
            [
                condition(
                    "QuotaReserved",
                    "Pending",
                    "couldn't assign flavors: insufficient quota for google.com/tpu",
                    "False",
                )
            ],
            "Kueue has not admitted it to queue train: couldn't assign flavors: insufficient quota for google.com/tpu",
        ),
        ([condition("Evicted", "Preempted", "preempted to accommodate a workload of higher priority")], "preempted to"),
        ([], "Kueue has not looked at it yet (queue train)"),
    ],
)
def test_a_suspended_job_tells_of_kueue(workload: list | None, words: str) -> None:
    raw = None if workload is None else {"status": {"conditions": workload}}
    found = verdict(job(suspend=True), workload=raw)
    assert found.state is JobState.QUEUED
    assert words in found.reason


def test_a_missing_service_account_is_told_at_once_and_final_in_the_end() -> None:
    message = 'pods "x" is forbidden: error looking up service account lab/w: serviceaccount "w" not found'
    soon = verdict(job(), events=(event("FailedCreate", message, NAME, "Job", minutes=0.1),))
    assert (soon.state, soon.failure, soon.step) == (JobState.QUEUED, FailureClass.CONFIGURATION, Step.WAIT)
    assert 'serviceaccount "w" not found' in soon.reason
    late = verdict(job(), events=(event("FailedCreate", message, NAME, "Job", minutes=3),), committed=False)
    assert (late.state, late.failure) == (JobState.FAILED, FailureClass.CONFIGURATION)


@pytest.mark.parametrize(
    ("waiting", "message", "minutes", "failure", "final"),
    [
        ("ErrImagePull", "connection reset by peer", 1, FailureClass.IMAGE, False),
        ("ImagePullBackOff", "Back-off pulling image", 3, FailureClass.IMAGE, True),
        ("ErrImagePull", "lab/marin:1: not found", 0.2, FailureClass.IMAGE, True),
        ("InvalidImageName", "", 0.2, FailureClass.IMAGE, True),
        ("CreateContainerConfigError", 'secret "hub" not found', 1, FailureClass.CONFIGURATION, False),
        ("CreateContainerConfigError", 'secret "hub" not found', 3, FailureClass.CONFIGURATION, True),
    ],
)
def test_a_container_that_cannot_start(
    waiting: str, message: str, minutes: float, failure: FailureClass, final: bool
) -> None:
    scheduled = condition("PodScheduled", minutes=minutes)
    found = verdict(job(), pending(scheduled, waiting=waiting, message=message, created=minutes), committed=False)
    assert found.failure is failure
    assert message in found.reason
    assert found.state is (JobState.FAILED if final else JobState.STARTING)


def test_a_starting_pod_tells_what_it_does() -> None:
    scheduled = condition("PodScheduled", minutes=4)
    waiting = pending(scheduled, waiting="ContainerCreating", created=4)
    assert verdict(job(), waiting).reason == f"starting 4 min on {NODE}"
    pulling = event("Pulling", 'Pulling image "lab/marin:1"')
    assert verdict(job(), waiting, events=(pulling,)).reason.endswith("pulling its image")
    mount = event("FailedMount", "MountVolume.SetUp failed for volume x")
    assert "MountVolume.SetUp failed" in verdict(job(), waiting, events=(mount,)).reason


def test_a_gang_runs_when_all_of_it_runs() -> None:
    members = [pod("a"), pending(UNSCHEDULABLE, created=2)]
    found = verdict(job(kind="JobSet"), *members)
    assert found.state is JobState.QUEUED
    assert found.reason.startswith("1 of 2 pods run; pending 2 min: no node pool")
    assert verdict(job(kind="JobSet"), pod("a"), pod("b")).state is JobState.RUNNING


# How attempts end


@pytest.mark.parametrize(
    ("ended", "failure", "words"),
    [
        (failed(code=1), FailureClass.APPLICATION, "exit code 1"),
        (failed(code=137), FailureClass.APPLICATION, "SIGKILL"),
        (failed(code=137, reason="OOMKilled"), FailureClass.OUT_OF_MEMORY, "its limit of 64Gi"),
        (failed("p0", 137, DISRUPTED), FailureClass.PREEMPTED, "preempted by a pod of higher priority"),
        (failed("p0", EXIT_TERMINATED, DISRUPTED), FailureClass.PREEMPTED, "higher priority"),
        (
            failed("p0", 143, condition("DisruptionTarget", "EvictionByEvictionAPI", "Eviction API: evicting")),
            FailureClass.EVICTED,
            "drain",
        ),
        (failed("p0", 137, condition("DisruptionTarget", "DeletionByTaintManager")), FailureClass.PREEMPTED, "tainted"),
        (failed("p0", 137, condition("DisruptionTarget", "DeletionByPodGC")), FailureClass.PREEMPTED, "node is gone"),
    ],
)
def test_the_class_of_an_attempt(ended: dict, failure: FailureClass, words: str) -> None:
    found = verdict(job(), ended, pending(created=4))
    assert found.failure is failure
    assert words in found.reason
    disruption = failure.is_disruption
    assert found.state is (JobState.PREEMPTED if disruption else JobState.RETRYING)
    assert (found.preemptions, found.failures) == ((1, 0) if disruption else (0, 1))


def with_status(raw: dict, **status) -> dict:
    return {**raw, "status": {**raw["status"], **status}}


@pytest.mark.parametrize(
    ("reason", "message", "failure"),
    [
        ("Evicted", "The node was low on resource: memory.", FailureClass.EVICTED),
        ("Evicted", 'Usage of EmptyDir volume "scratch" exceeds the limit "100Gi".', FailureClass.APPLICATION),
        (
            "Evicted",
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
            FailureClass.APPLICATION,
        ),
        ("Preempted", "Preempted in order to admit critical pod", FailureClass.PREEMPTED),
        ("Shutdown", "Node is shutting down", FailureClass.PREEMPTED),
        ("NodeShutdown", "", FailureClass.PREEMPTED),
        ("Terminated", "Pod was terminated in response to imminent node shutdown.", FailureClass.PREEMPTED),
        ("NodeLost", "", FailureClass.PREEMPTED),
        ("UnexpectedAdmissionError", "Allocate failed due to requested number of devices", FailureClass.PREEMPTED),
    ],
)
def test_what_a_node_did_to_a_pod(reason: str, message: str, failure: FailureClass) -> None:
    ended = with_status(failed(code=137), reason=reason, message=message)
    found = verdict(job(), ended, pending(created=4))
    assert found.failure is failure
    assert message in found.reason


def test_a_pod_of_a_silent_node_was_lost() -> None:
    silent = event("NodeNotReady", "Node is not ready", minutes=6)
    found = verdict(job(), pod(gone=1, deleted=1), pending(created=1), events=(silent,))
    assert (found.failure, found.preemptions) == (FailureClass.PREEMPTED, 1)
    assert f"node {NODE} was lost" in found.reason


def test_a_pod_that_somebody_deleted_was_preempted() -> None:
    found = verdict(job(), pod(gone=1, deleted=1), pending(created=1))
    assert (found.state, found.failure) == (JobState.PREEMPTED, FailureClass.PREEMPTED)


def test_what_the_job_controller_cleans_up_is_no_attempt() -> None:
    found = verdict(job(GAVE_UP), failed("a", at=5), pod("b", gone=3, deleted=4), committed=False)
    assert (found.preemptions, found.failures) == (0, 1)


def test_an_error_of_the_task_is_final_in_the_tasks_words() -> None:
    refused = failed(code=EXIT_REFUSED)
    told = {f"{NAME}-p0": "mixture/nano has no tokens"}
    found = verdict(job(), refused, told=told, committed=False)
    assert (found.state, found.failure, found.step) == (JobState.FAILED, FailureClass.REFUSED, Step.FINISH)
    assert found.reason == "mixture/nano has no tokens"


def test_a_refusal_whose_pod_is_gone_is_told_by_the_job() -> None:
    message = "Container worker for pod lab/x failed with exit code 65 matching FailJob rule at index 1"
    found = verdict(job(condition("Failed", "PodFailurePolicy", message)), committed=False)
    assert (found.state, found.failure) == (JobState.FAILED, FailureClass.REFUSED)


def test_a_command_that_is_not_there_is_final() -> None:
    found = verdict(job(), failed(code=128, reason="StartError"), committed=False)
    assert (found.state, found.failure) == (JobState.FAILED, FailureClass.CONFIGURATION)


# Gangs


def attempt(number: int) -> dict[str, str]:
    return {"jobset.sigs.k8s.io/restart-attempt": str(number)}


@pytest.mark.parametrize("seconds_after_the_sibling", [-110, -1, 1, 110])
def test_a_sibling_goes_down_with_a_disrupted_pod_whichever_was_seen_first(seconds_after_the_sibling: int) -> None:
    sibling = failed("a", 1, at=5, labels=attempt(0))
    victim = failed("b", 137, DISRUPTED, at=5 - seconds_after_the_sibling / 60, labels=attempt(0))
    found = verdict(job(kind="JobSet", restarts=1), sibling, victim, pod("c", labels=attempt(1), created=3))
    assert (found.preemptions, found.failures) == (1, 0)


def test_a_disruption_long_before_is_another_matter() -> None:
    victim = failed("b", 137, DISRUPTED, at=10, labels=attempt(0))
    found = verdict(job(kind="JobSet", restarts=1), failed("a", 1, at=5, labels=attempt(0)), victim)
    assert (found.preemptions, found.failures) == (0, 1)


def test_pods_that_a_failed_sibling_took_along_are_no_preemption() -> None:
    first = failed("a", 1, at=5, labels=attempt(0), gone=4, deleted=4.9)
    others = [failed(name, 143, at=4.8, labels=attempt(0), gone=4, deleted=4.9) for name in ("b", "c")]
    found = verdict(job(kind="JobSet", restarts=1), *others, first, pending(created=4, labels=attempt(1)))
    assert (found.preemptions, found.failures, found.failure) == (0, 1, FailureClass.APPLICATION)
    assert found.culprit == f"{NAME}-a"


def test_a_pod_that_failed_and_was_deleted_within_the_same_second_failed() -> None:
    first = failed("a", 7, at=5, labels=attempt(0), gone=4, deleted=5)
    sibling = failed("b", 143, at=5, labels=attempt(0), gone=4, deleted=5)
    found = verdict(job(kind="JobSet", restarts=1), sibling, first, pod("c", labels=attempt(1), created=3))
    assert (found.preemptions, found.failures) == (0, 1)


def test_a_restart_that_is_seen_before_the_pod_that_caused_it_is_judged_again() -> None:
    early = verdict(job(kind="JobSet", restarts=1), pod("a", labels=attempt(0)), pod("b", labels=attempt(0)))
    assert early.failures == 0
    members = [failed("a", 1, labels=attempt(0)), pod("b", labels=attempt(0))]
    later = verdict(job(kind="JobSet", restarts=1), *members, ended=early.ended)
    assert (later.preemptions, later.failures) == (0, 1)


def test_a_gang_is_one_attempt_for_each_restart() -> None:
    members = [failed(f"{n}{i}", 1, at=10 - n, labels=attempt(n)) for n in range(2) for i in range(4)]
    found = verdict(
        job(condition("Failed", "ReachedMaxRestarts"), kind="JobSet", restarts=1), *members, committed=False
    )
    assert found.state is JobState.FAILED
    assert found.reason.endswith("2 times")


def test_restarts_that_nobody_watched_were_preemptions() -> None:
    found = verdict(job(kind="JobSet", restarts=7), pod(labels=attempt(7)))
    assert (found.state, found.preemptions, found.failures) == (JobState.RUNNING, 7, 0)


def test_a_disruption_stays_one_when_its_pod_is_gone() -> None:
    both = verdict(job(kind="JobSet"), failed("a", labels=attempt(0)), failed("b", 137, DISRUPTED, labels=attempt(0)))
    later = verdict(job(kind="JobSet", restarts=1), failed("a", labels=attempt(0)), ended=both.ended)
    assert (later.preemptions, later.failures) == (1, 0)


def test_a_gangs_failure_is_final_only_when_its_class_is_certain() -> None:
    spent = job(kind="JobSet", recorded=(0, 1))
    alive = pod("b", labels=attempt(0))
    soon = verdict(spent, failed("a", 1, at=1, labels=attempt(0)), alive, committed=False)
    assert soon.step is Step.WAIT
    late = verdict(spent, failed("a", 1, at=3, labels=attempt(0)), alive, committed=False)
    assert late.state is JobState.FAILED


# Ends


def test_success_is_the_record_and_nothing_else() -> None:
    done = pod(phase="Succeeded", state={"terminated": {"exitCode": 0, "finishedAt": ago(1)}})
    asked = verdict(job(COMPLETE), done)
    assert asked.step is Step.LOOK_FOR_RECORD
    assert not asked.state.is_final
    assert verdict(job(COMPLETE), done, committed=True).state is JobState.SUCCEEDED
    empty = verdict(job(COMPLETE), done, committed=False)
    assert (empty.state, empty.reason) == (JobState.FAILED, "the job ended well but committed nothing")
    assert verdict(job(GAVE_UP), failed(), committed=True).state is JobState.SUCCEEDED


def test_counters_decide_nothing() -> None:
    between = verdict(job(failed=1, active=0), failed(at=0.1))
    assert (between.state, between.step) == (JobState.RETRYING, Step.WAIT)
    assert verdict(job(succeeded=1), pod(phase="Succeeded", state={"terminated": {"exitCode": 0}})).step is Step.WAIT


def test_the_failure_budget() -> None:
    first = verdict(job(), failed("a"), pod("b"))
    assert (first.state, first.failures) == (JobState.RUNNING, 1)
    second = verdict(job(GAVE_UP), failed("a"), failed("b", at=4), committed=False)
    assert (second.state, second.step) == (JobState.FAILED, Step.FINISH)
    assert second.reason == "the worker ended with exit code 1, 2 times"
    assert second.failures == 1  # retries


def test_the_preemption_budget() -> None:
    often = verdict(job(recorded=(100, 0)), failed("a", 137, DISRUPTED), committed=False)
    assert (often.state, often.failure) == (JobState.FAILED, FailureClass.PREEMPTED)
    assert "more than max_preemptions = 100" in often.reason


def test_a_job_that_the_cluster_gave_up_too_early_is_made_again_with_its_counts() -> None:
    found = verdict(job(GAVE_UP, recorded=(3, 1)), failed("a", 137, DISRUPTED), committed=False)
    assert (found.state, found.step) == (JobState.PREEMPTED, Step.RECREATE)
    assert (found.preemptions, found.failures) == (4, 1)


def test_pods_of_an_earlier_object_do_not_count() -> None:
    found = verdict(
        job(uid="job-2", recorded=(1, 0)), failed("a", 137, DISRUPTED, owner="job-1"), pod("b", owner="job-2")
    )
    assert (found.state, found.preemptions, found.failures) == (JobState.RUNNING, 1, 0)


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        ([], "pending (it had no pods yet)"),
        ([pending(UNSCHEDULABLE, gone=0.5)], "pending"),
        ([pending(waiting="ContainerCreating", gone=0.5)], "starting"),
        ([pod(gone=0.5)], "running"),
    ],
)
def test_a_job_deleted_from_outside_has_failed_with_its_phase(pods: list, phase: str) -> None:
    gone = verdict(None, *pods, gone_since=NOW - timedelta(seconds=30), committed=False)
    assert (gone.state, gone.failure) == (JobState.FAILED, FailureClass.DELETED)
    assert f"deleted from outside while {phase};" in gone.reason
    just = verdict(None, *pods, gone_since=NOW - timedelta(seconds=3), committed=False)
    assert just.step is Step.WAIT  # who replaces it does so now


# Time


def test_a_job_queues_for_30_hours_and_runs_for_72_without_a_log_or_a_message() -> None:
    """A simulated clock goes through the whole life of a job; no state of it depends on logs."""
    start, queued, run = NOW, timedelta(hours=30), timedelta(hours=72)
    states = []
    for hour in range(103):
        now = start + timedelta(hours=hour)
        states.append(judge(life(start, now, queued, run), TERMS).state)
    assert set(states[:30]) == {JobState.QUEUED}
    assert set(states[30:102]) == {JobState.RUNNING}
    end = judge(replace(life(start, start + queued + run, queued, run), committed=True), TERMS)
    assert end.state is JobState.SUCCEEDED


def life(start: datetime, now: datetime, queued: timedelta, run: timedelta) -> Sight:
    began = (start + queued).isoformat()
    if now < start + queued:
        return Sight(job(created=0), now, (pending(UNSCHEDULABLE, created=0),))
    if now < start + queued + run:
        running = pod(created=0, state={"running": {"startedAt": began}})
        return Sight(job(created=0), now, (running,), started=start + queued)
    done = pod(created=0, phase="Succeeded", state={"terminated": {"exitCode": 0, "startedAt": began}})
    return Sight(job(COMPLETE, created=0), now, (done,), started=start + queued)


def test_limits_of_time_are_kept_where_they_are_set() -> None:
    long_queue = sight(job(created=1900), pending(UNSCHEDULABLE, created=1900), committed=False)
    assert judge(long_queue, TERMS).state is JobState.QUEUED
    limited = judge(long_queue, replace(TERMS, max_queue_hours=24))
    assert limited.state is JobState.FAILED
    assert limited.reason.startswith("waited longer than max_queue_hours = 24; pending 31.5 h: no node pool")
    long_run = sight(job(created=5000), pod(created=4900), started=NOW - timedelta(hours=72), committed=False)
    assert judge(long_run, replace(TERMS, max_queue_hours=1)).state is JobState.RUNNING
    over = judge(long_run, replace(TERMS, max_run_hours=48))
    assert (over.state, over.reason) == (JobState.FAILED, "ran longer than max_run_hours = 48")


def test_a_pod_that_is_being_ended_says_so() -> None:
    ending = pod("p0", DISRUPTED)
    assert verdict(job(), ending).reason == f"pod {NAME}-p0 is being ended and saves its checkpoint"
