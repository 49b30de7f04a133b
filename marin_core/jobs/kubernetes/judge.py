"""From what is known of a job on the cluster to its state, and to what is to be done about it. Pure."""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from marin_core.jobs.kubernetes.attempts import attempts, counts, is_settled, last_of, object_end
from marin_core.jobs.kubernetes.sight import (
    GONE_AT,
    Ended,
    Raw,
    Sight,
    Terms,
    belongs,
    condition,
    container,
    created,
    holds,
    is_set,
    name_of,
    pod_index,
)
from marin_core.jobs.kubernetes.times import in_words, parse_time
from marin_core.jobs.kubernetes.waiting import why_waiting
from marin_core.jobs.spec import EXIT_REFUSED, FailureClass, JobState

# Somebody who deletes an object in order to create it again does so within this time.
_REPLACEMENT = timedelta(seconds=10)
_UNSEEN = "nobody saw the last one"


class Step(enum.Enum):
    """What the launcher does next."""

    WAIT = "wait"
    LOOK_FOR_RECORD = "look for the record, then judge again"
    RECREATE = "delete the object and create it again"
    FINISH = "the job is over"


@dataclass(frozen=True)
class Verdict:
    """`ended` are all attempts of this object known to have ended; `culprit` names the pod whose log tells why the last
    one did."""

    state: JobState
    reason: str = ""
    failure: FailureClass | None = None
    preemptions: int = 0
    failures: int = 0
    step: Step = Step.WAIT
    ended: Mapping[str, Ended] | None = None
    culprit: str | None = None


def judge(sight: Sight, terms: Terms) -> Verdict:
    """Where the job stands. Success is a committed record and nothing else; whether there is one is asked only when the
    cluster says that the job is over, or its budgets or limits do."""
    ended = attempts(sight)
    preemptions, failures = counts(sight, ended)
    last = last_of(ended)
    if sight.committed:
        verdict = Verdict(JobState.SUCCEEDED, step=Step.FINISH)
    elif sight.object is None:
        verdict = _gone(sight, last)
    else:
        given_up = _given_up(sight, terms, ended)
        if given_up:
            ended = given_up
            preemptions, failures = counts(sight, ended)
            last = last_of(ended)
        verdict = _over(sight, terms, preemptions, failures, last) or _alive(sight, terms, last or sight.before)
    if verdict.step in (Step.FINISH, Step.RECREATE) and sight.committed is None:
        reason = "it has come to an end; looking for its record"
        verdict = replace(verdict, state=_still(verdict, last), reason=reason, step=Step.LOOK_FOR_RECORD)
    return replace(
        verdict,
        # The end that no attempt follows is no retry.
        preemptions=min(preemptions, terms.max_preemptions),
        failures=min(failures, terms.max_failures),
        ended=ended,
        culprit=verdict.culprit or (last.pod if last else None),
    )


def _still(verdict: Verdict, last: Ended | None) -> JobState:
    if verdict.state.is_final:
        return JobState.RUNNING if last is None else _retrying(last)
    return verdict.state


def _retrying(last: Ended) -> JobState:
    return JobState.PREEMPTED if last.failure.is_disruption else JobState.RETRYING


def _gone(sight: Sight, last: Ended | None) -> Verdict:
    if sight.gone_since is None:
        return Verdict(JobState.QUEUED)
    if sight.now - sight.gone_since < _REPLACEMENT:
        state = _retrying(last) if last else JobState.RETRYING
        return Verdict(state, "its object on the cluster was deleted; waiting whether it is created again")
    phase = _phase(sight)
    reason = f"deleted from outside while {phase}; nothing was committed: submit it again if that was a mistake"
    return Verdict(JobState.FAILED, reason, FailureClass.DELETED, step=Step.FINISH)


def _phase(sight: Sight) -> str:
    phases = {pod.get("status", {}).get("phase") for pod in sight.pods}
    if not sight.pods:
        return "pending (it had no pods yet)"
    if sight.started or "Running" in phases:
        return "running"
    placed = any(pod.get("spec", {}).get("nodeName") for pod in sight.pods)
    return "starting" if placed else "pending"


def _given_up(sight: Sight, terms: Terms, ended: Mapping[str, Ended]) -> dict[str, Ended]:
    """The end of an object that failed without any pod left to say why."""
    assert sight.object
    failed = holds(sight.object, "Failed")
    if not failed or ended:
        return {}
    said = ": ".join(" ".join(part.split()) for part in (failed.get("reason"), failed.get("message")) if part)
    code = re.search(r"exit code (\d+)", said)
    failure, words = FailureClass.UNKNOWN, f"the cluster gave it up ({said})"
    if code and int(code.group(1)) == EXIT_REFUSED:
        failure, words = FailureClass.REFUSED, "the task refused; its messages are gone"
    at = parse_time(failed.get("lastTransitionTime")) or sight.now
    return {object_end(sight.object): Ended(failure, words, "", at)}


def _over(sight: Sight, terms: Terms, preemptions: int, failures: int, last: Ended | None) -> Verdict | None:
    """The verdict on a job that has ended, or must."""
    assert sight.object
    if holds(sight.object, "Completed" if is_set(sight.object) else "Complete"):
        reason = "the job ended well but committed nothing"
        return Verdict(JobState.FAILED, reason, FailureClass.APPLICATION, step=Step.FINISH, culprit=_lead(sight))
    if last and last.failure.is_final:
        return Verdict(JobState.FAILED, _told(sight, last), last.failure, step=Step.FINISH)
    spent = failures > terms.max_failures or preemptions > terms.max_preemptions
    failed = holds(sight.object, "Failed")
    if not (spent or failed) or not is_settled(sight):
        return None
    if spent:
        return _spent(sight, terms, preemptions, failures, last)
    assert last, "an object that failed has an end, if only its own"
    return Verdict(_retrying(last), f"{_told(sight, last)}; starting it again", last.failure, step=Step.RECREATE)


def _spent(sight: Sight, terms: Terms, preemptions: int, failures: int, last: Ended | None) -> Verdict:
    """The end of a job beyond one of its budgets; restarts that nobody saw have no `last`."""
    if failures > terms.max_failures:
        failure = last.failure if last else FailureClass.UNKNOWN
        reason = f"failed {failures} times, more than max_failures = {terms.max_failures}; {_UNSEEN}"
        if last:
            reason = _told(sight, last) + (f", {failures} times" if failures > 1 else "")
    else:
        failure = last.failure if last else FailureClass.PREEMPTED
        how = f"last: {last.words}" if last else _UNSEEN
        reason = f"preempted {preemptions} times, more than max_preemptions = {terms.max_preemptions}; {how}"
    return Verdict(JobState.FAILED, reason, failure, step=Step.FINISH)


def _told(sight: Sight, last: Ended) -> str:
    """How an attempt ended, in the worker's own words where it had any."""
    said = sight.told.get(last.pod)
    if last.failure is FailureClass.REFUSED and said:
        return said
    return f"{last.words}: {said}" if said and not last.failure.is_disruption else last.words


def _alive(sight: Sight, terms: Terms, last: Ended | None) -> Verdict:
    assert sight.object
    pods = [pod for pod in sight.pods if belongs(pod, sight.object) and GONE_AT not in pod]
    active = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
    late = _too_long(sight, terms)
    if late:
        return late
    if (active and all(_runs(pod) for pod in active)) or (not active and _all_done(pods)):
        return Verdict(JobState.RUNNING, _where(active))
    waited = sight.now - _waits_since(sight, pods, last)
    wait = why_waiting(sight, terms)
    if terms.max_queue_hours is not None and waited > timedelta(hours=terms.max_queue_hours):
        limit = f"waited longer than max_queue_hours = {terms.max_queue_hours:g}; {wait.reason}"
        return Verdict(JobState.FAILED, limit, wait.failure or FailureClass.UNKNOWN, step=Step.FINISH)
    if wait.is_final:
        return Verdict(JobState.FAILED, wait.reason, wait.failure, step=Step.FINISH)
    if last is None:
        return Verdict(wait.state, wait.reason, wait.failure)
    words = f"{_told(sight, last)}, {in_words(sight.now - last.at)} ago; {wait.reason}"
    return Verdict(_retrying(last), words, wait.failure or last.failure)


def _waits_since(sight: Sight, pods: Sequence[Raw], last: Ended | None) -> datetime:
    """The latest of what began the wait: a job that is attached to may have run for days before its pods were taken."""
    assert sight.object
    suspended = (condition(sight.object, "Suspended") or {}).get("lastTransitionTime")
    began = [created(raw) for raw in (sight.object, *pods)]
    return max(began + [at for at in (last and last.at, parse_time(suspended)) if at])


def _too_long(sight: Sight, terms: Terms) -> Verdict | None:
    if terms.max_run_hours is None or sight.started is None:
        return None
    if sight.now - sight.started <= timedelta(hours=terms.max_run_hours):
        return None
    reason = f"ran longer than max_run_hours = {terms.max_run_hours:g}"
    return Verdict(JobState.FAILED, reason, FailureClass.UNKNOWN, step=Step.FINISH)


def _runs(pod: Raw) -> bool:
    return "running" in container(pod).get("state", {}) or "terminated" in container(pod).get("state", {})


def _all_done(pods: list[Raw]) -> bool:
    return bool(pods) and all(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)


def _where(active: list[Raw]) -> str:
    ending = [pod for pod in active if pod["metadata"].get("deletionTimestamp") or holds(pod, "DisruptionTarget")]
    if ending:
        return f"pod {name_of(ending[0])} is being ended and saves its checkpoint"
    nodes = sorted({pod.get("spec", {}).get("nodeName", "") for pod in active} - {""})
    return f"on {nodes[0]}" if len(nodes) == 1 else f"on {len(nodes)} nodes" if nodes else ""


def _lead(sight: Sight) -> str | None:
    return next((name_of(pod) for pod in sight.pods if pod_index(pod) == (0, 0)), None)


def first_start(sight: Sight) -> datetime | None:
    """When the first pod of the object that is known began to run."""
    starts = [sight.started] if sight.started else []
    for pod in sight.pods if sight.object else ():
        state = container(pod).get("state", {})
        began = parse_time((state.get("running") or state.get("terminated") or {}).get("startedAt"))
        if began and sight.object and belongs(pod, sight.object):
            starts.append(began)
    return min(starts, default=None)
