"""Which ends of pods count, as what, and since when: clean-up, lost nodes, missing peers, evictions, late sights."""

from dataclasses import replace

import pytest

from marin_core.jobs.kubernetes.judge import Step, Verdict, judge
from marin_core.jobs.spec import EXIT_PEERS_MISSING, EXIT_REFUSED, EXIT_TERMINATED, FailureClass, JobState
from tests.jobs.kubernetes.raw import NAME, TERMS, condition, failed, job, pending, pod, sight
from tests.jobs.kubernetes.test_judge import DISRUPTED, GAVE_UP, UNSCHEDULABLE, attempt, verdict, with_status

# Clean-up, evictions, missing peers


def target(minutes: float, reason: str = "PodFailurePolicy") -> dict:
    """Since Kubernetes 1.31 a Job says so before it ends its pods, and `Failed` when they are gone."""
    return condition("FailureTarget", reason, minutes=minutes)


def cleaned_up(name: str, asked: float = 5, at: float = 4) -> dict:
    return failed(name, EXIT_TERMINATED, at=at, deleted=asked)


def test_ranks_that_a_refused_one_took_along_are_no_preemptions() -> None:
    pods = [failed("j-1", EXIT_REFUSED, at=5.1), *(cleaned_up(f"j-{n}") for n in (0, 2, 3))]
    over = job(target(5), condition("Failed", "PodFailurePolicy", minutes=4))
    found = verdict(over, *pods, committed=False)
    assert (found.state, found.failure, found.step) == (JobState.FAILED, FailureClass.REFUSED, Step.FINISH)
    assert (found.preemptions, found.culprit) == (0, f"{NAME}-j-1")


def test_the_rank_that_crashed_is_to_blame_and_not_one_that_was_cleaned_up_after_it() -> None:
    pods = [failed("a", at=8), failed("b", at=5.1), cleaned_up("c"), cleaned_up("d")]
    for over in (job(), job(target(5)), job(target(5), GAVE_UP)):
        found = verdict(over, *pods, committed=False)
        assert (found.state, found.failure, found.culprit) == (
            JobState.FAILED,
            FailureClass.APPLICATION,
            f"{NAME}-b",
        )
        assert found.reason == "the worker ended with exit code 1, 2 times"


def test_an_end_that_proves_to_be_clean_up_is_counted_no_longer() -> None:
    early = verdict(job(), failed("a", at=5.1), cleaned_up("b"))
    assert early.preemptions == 1
    for later in (verdict(job(target(5)), ended=early.ended), verdict(job(target(5)), cleaned_up("b"))):
        assert later.preemptions == 0
    kept = verdict(job(target(5)), cleaned_up("c", asked=9, at=8.9), failed("d", 137, DISRUPTED, deleted=4))
    assert kept.preemptions == 2  # before the clean-up, and by a disruption of its own


def test_a_crash_of_yesterday_does_not_explain_a_deletion_of_today() -> None:
    found = verdict(job(created=2000), failed("a", at=1500), failed("b", 143, at=5, deleted=5.1), pending(created=4))
    assert (found.state, found.failure) == (JobState.PREEMPTED, FailureClass.PREEMPTED)


def test_peers_that_did_not_come_are_a_disruption_and_say_why() -> None:
    late = pod("c", UNSCHEDULABLE, phase="Pending", state={}, node=None, labels=attempt(0))
    members = [failed(name, EXIT_PEERS_MISSING, at=1, labels=attempt(0)) for name in ("a", "b")]
    found = verdict(job(kind="JobSet"), *members, late)
    assert (found.preemptions, found.failures, found.failure) == (1, 0, FailureClass.PREEMPTED)
    assert found.reason.startswith(
        f"its peers did not come within 10 min (pod {NAME}-a); pod {NAME}-c found no node: 0/3 nodes are available"
    )
    crashed = failed("c", 1, at=0.5, labels=attempt(0))
    assert verdict(job(kind="JobSet"), *members, crashed).failures == 1


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ("memory. Threshold quantity: 100Mi, available: 9Mi. {} 220Gi, request is 180Gi, has larger", "OUT_OF_MEMORY"),
        ("memory. {} 170Gi, request is 180Gi, has larger consumption of memory. ", "EVICTED"),
        ("memory. {} 900Mi, request is 1Gi.", "EVICTED"),
        ("memory. {} 188743680Ki, request is 100G.", "OUT_OF_MEMORY"),
        ("ephemeral-storage. {} 11.5Gi, request is 10Gi, has larger", "APPLICATION"),
        ("memory. Container istio was using 2Gi, request is 1Gi. ", "EVICTED"),
    ],
)
def test_an_eviction_from_a_full_node_is_the_workers_own_doing_if_it_used_too_much(message: str, failure: str) -> None:
    said = "The node was low on resource: " + message.format("Container worker was using")
    ended = with_status(
        failed("p0", 137, condition("DisruptionTarget", "TerminationByKubelet")), reason="Evicted", message=said
    )
    assert verdict(job(), ended, pending(created=4)).failure is FailureClass[failure]


# Times


def limited(raw: dict, *pods: dict, **more) -> Verdict:
    return judge(sight(raw, *pods, committed=False, **more), replace(TERMS, max_queue_hours=24))


def test_a_job_that_ran_for_days_has_not_queued_for_days() -> None:
    attached = limited(job(created=1800), pending(UNSCHEDULABLE, created=1))
    assert attached.step is Step.WAIT
    taken = pod("a", condition("DisruptionTarget", "DeletionByPodGC", minutes=2), phase="Failed", created=1800)
    assert limited(job(created=1800), taken).step is Step.WAIT
    suspended = job(condition("Suspended", "JobSuspended", minutes=3), created=1800, suspend=True)
    assert limited(suspended).step is Step.WAIT
    assert limited(job(created=1800), pending(UNSCHEDULABLE, created=1500)).state is JobState.FAILED


@pytest.mark.parametrize(("minutes_after", "failures"), [(0.5, 0), (6, 0), (12, 1)])
def test_a_member_on_a_lost_node_ended_when_that_was_told(minutes_after: float, failures: int) -> None:
    told = condition("DisruptionTarget", "DeletionByTaintManager", minutes=20 - minutes_after)
    lost = pod("b", told, phase="Failed", created=700, labels=attempt(0))
    peer = failed("a", 1, at=20, labels=attempt(0))
    assert verdict(job(kind="JobSet", restarts=1, created=800), peer, lost).failures == failures


def test_a_member_on_a_silent_node_is_waited_for() -> None:
    spent, crashed = job(kind="JobSet", recorded=(0, 1)), failed("a", 1, at=5, labels=attempt(0))
    silent = pod("b", condition("Ready", "NodeNotReady", status="False"), labels=attempt(0))
    assert verdict(spent, crashed, silent, committed=False).step is Step.WAIT
    late = failed("a", 1, at=11, labels=attempt(0))
    assert verdict(spent, late, silent, committed=False).state is JobState.FAILED


# What nobody saw


@pytest.mark.parametrize(
    ("recorded", "failure", "words"),
    [
        ((0, 2), FailureClass.UNKNOWN, "failed 2 times, more than max_failures = 1; nobody saw the last one"),
        ((101, 0), FailureClass.PREEMPTED, "preempted 101 times, more than max_preemptions = 100; nobody saw"),
    ],
)
def test_budgets_that_were_spent_unseen(recorded: tuple[int, int], failure: FailureClass, words: str) -> None:
    found = verdict(job(recorded=recorded), pod(), committed=False)
    assert (found.state, found.failure, found.step) == (JobState.FAILED, failure, Step.FINISH)
    assert found.reason.startswith(words)
    assert verdict(job(kind="JobSet", restarts=101), pod(), committed=False).failure is FailureClass.PREEMPTED


def test_pods_that_are_seen_late_take_the_place_of_the_objects_end() -> None:
    unexplained = verdict(job(GAVE_UP))
    assert [end.failure for end in (unexplained.ended or {}).values()] == [FailureClass.UNKNOWN]
    known = verdict(job(GAVE_UP), failed(code=137, reason="OOMKilled"), ended=unexplained.ended, committed=False)
    assert (known.failures, known.failure) == (1, FailureClass.OUT_OF_MEMORY)
