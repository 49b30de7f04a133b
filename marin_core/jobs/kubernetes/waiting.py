"""Why a job's pods do not run yet, in words that a person can act on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from marin_core.jobs.kubernetes.sight import (
    GONE_AT,
    Raw,
    Sight,
    Terms,
    belongs,
    condition,
    container,
    created,
    event_time,
    holds,
    name_of,
)
from marin_core.jobs.kubernetes.times import in_words, parse_time
from marin_core.jobs.spec import FailureClass, JobState

# How long a mistake may last before it is final: registries have bad minutes, and a secret may be a moment late.
PATIENCE = timedelta(minutes=2)
# An event that says why nothing happens is repeated while that is so; an older one is history.
_FRESH = timedelta(minutes=10)

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError"}
_MISTAKE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_MOUNTS = {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "NetworkNotReady"}
_NO_SUCH_IMAGE = ("not found", "notfound", "manifest unknown", "does not exist", "invalidimagename")


@dataclass(frozen=True)
class Waiting:
    """`is_final` if waiting longer changes nothing."""

    state: JobState
    reason: str
    failure: FailureClass | None = None
    is_final: bool = False


def why_waiting(sight: Sight, terms: Terms) -> Waiting:
    """What the job waits for; `sight.object` is there and not at its end."""
    assert sight.object
    pods = [pod for pod in sight.pods if belongs(pod, sight.object) and _is_live(pod)]
    if sight.object.get("spec", {}).get("suspend"):
        return Waiting(JobState.QUEUED, _suspended(sight, terms))
    pending = [pod for pod in pods if pod.get("status", {}).get("phase") in (None, "Pending")]
    if not pods:
        return _no_pods(sight)
    if not pending:
        return Waiting(JobState.STARTING, "its pods have just ended or are about to run")
    worst = max((_pending(pod, sight, terms) for pod in pending), key=_gravity)
    running = len(pods) - len(pending)
    if running:
        return Waiting(worst.state, f"{running} of {len(pods)} pods run; {worst.reason}", worst.failure, worst.is_final)
    return worst


def what_holds(pod: Raw) -> str:
    """What one pod that does not run yet waits for, as far as it says so itself."""
    scheduled = condition(pod, "PodScheduled")
    waits = container(pod).get("state", {}).get("waiting") or {}
    if scheduled and scheduled["status"] != "True":
        said = scheduled.get("message") or scheduled.get("reason") or "the scheduler gave no reason"
        return f"found no node: {' '.join(said.split()).rstrip('.')}"
    if waits.get("message") or waits.get("reason"):
        return f"did not start: {' '.join((waits.get('message') or waits['reason']).split()).rstrip('.')}"
    return "did not start in time"


def _is_live(pod: Raw) -> bool:
    return GONE_AT not in pod and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _gravity(waiting: Waiting) -> tuple[bool, bool, bool]:
    return waiting.is_final, waiting.failure is not None, waiting.state is JobState.QUEUED


def _suspended(sight: Sight, terms: Terms) -> str:
    assert sight.object
    age = in_words(sight.now - created(sight.object))
    labels = sight.object["metadata"].get("labels") or {}
    queue = labels.get("kueue.x-k8s.io/queue-name") or terms.queue
    if not queue:
        return f"suspended {age}: somebody suspended it; `kubectl patch` its spec.suspend to false to let it run"
    if sight.workload is None:
        return (
            f"queued {age}: suspended, and Kueue has made no Workload of it: is the Kueue controller running, and is "
            f"there a LocalQueue {queue!r} in namespace {terms.namespace}?"
        )
    for kind in ("Evicted", "QuotaReserved", "Admitted"):
        found = condition(sight.workload, kind)
        blocks = found and (found["status"] == "True") == (kind == "Evicted")
        if found and blocks and not (kind == "Evicted" and holds(sight.workload, "QuotaReserved")):
            message = " ".join((found.get("message") or found.get("reason") or "").split())
            return f"queued {age}: Kueue has not admitted it to queue {queue}: {message}"
    return f"queued {age}: Kueue has not looked at it yet (queue {queue})"


def _no_pods(sight: Sight) -> Waiting:
    """The job controller says in events why it cannot create pods."""
    assert sight.object
    age = sight.now - created(sight.object)
    event = _latest(sight, {"FailedCreate"})
    if event is None:
        said = "" if age < timedelta(minutes=1) else "; is the controller of its kind running?"
        return Waiting(JobState.QUEUED, f"waiting {in_words(age)} for its pods to be created{said}")
    message = _message(event)
    lower = message.lower()
    if "exceeded quota" in lower:
        return Waiting(JobState.QUEUED, f"pending {in_words(age)}: the namespace's ResourceQuota is full: {message}")
    first = parse_time(event.get("firstTimestamp")) or event_time(event) or created(sight.object)
    final = sight.now - first > PATIENCE
    if "serviceaccount" in lower and "not found" in lower:
        reason = f"no service account: {message}; create it, or correct the profile's `service_account`"
        return Waiting(JobState.QUEUED, reason, FailureClass.CONFIGURATION, final)
    reason = f"pending {in_words(age)}: its pods are refused: {message}"
    # Webhooks and controllers come and go; what a person must change does not.
    mistake = "forbidden" in lower or "invalid" in lower or "no priorityclass" in lower
    return Waiting(JobState.QUEUED, reason, FailureClass.CONFIGURATION if mistake else None, mistake and final)


def _pending(pod: Raw, sight: Sight, terms: Terms) -> Waiting:
    age = in_words(sight.now - created(pod))
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled["status"] != "True":
        return Waiting(JobState.QUEUED, _unschedulable(pod, scheduled, age, sight, terms))
    if not pod.get("spec", {}).get("nodeName"):
        return Waiting(JobState.QUEUED, f"pending {age}: the scheduler has not looked at it yet")
    return _on_node(pod, sight, age)


def _unschedulable(pod: Raw, scheduled: Raw, age: str, sight: Sight, terms: Terms) -> str:
    message = " ".join((scheduled.get("message") or "").split()).rstrip(".")
    if scheduled.get("reason") == "SchedulingGated":
        return f"pending {age}: held back by a scheduling gate: {message}"
    if not message:
        event = _latest(sight, {"FailedScheduling"}, name_of(pod))
        message = _message(event) if event else "the scheduler gave no reason"
    growing = _latest(sight, {"TriggeredScaleUp"}, name_of(pod))
    refused = _latest(sight, {"NotTriggerScaleUp"}, name_of(pod))
    pools = " or ".join(terms.pools)
    if growing and (not refused or _at(growing, sight) >= _at(refused, sight)):
        adding = f"the autoscaler is adding nodes for {pools} in {terms.region} ({_message(growing)})"
        return f"pending {age}: {adding}: {message}"
    autoscaler = f"; autoscaler: {_message(refused)}" if refused else ""
    return f"pending {age}: no node pool with {pools} free in {terms.region}: {message}{autoscaler}"


def _on_node(pod: Raw, sight: Sight, age: str) -> Waiting:
    waits = container(pod).get("state", {}).get("waiting") or {}
    reason, message = waits.get("reason", ""), " ".join((waits.get("message") or "").split())
    node = pod.get("spec", {}).get("nodeName")
    image = (pod.get("spec", {}).get("containers") or ({},))[0].get("image", "")
    since = parse_time((condition(pod, "PodScheduled") or {}).get("lastTransitionTime")) or created(pod)
    lasting = sight.now - since > PATIENCE
    if reason == "InvalidImageName":
        said = f"{image!r} is no name of an image; correct MARIN_IMAGE or the profile's `image`"
        return Waiting(JobState.STARTING, said, FailureClass.IMAGE, True)
    if reason in _IMAGE:
        event = _latest(sight, {"Failed"}, name_of(pod))
        said = message if reason == "ErrImagePull" or not event else _message(event)
        final = lasting or any(words in f"{said} {message}".lower() for words in _NO_SUCH_IMAGE)
        words = f"starting {age}: image {image} cannot be pulled on {node}: {said or reason}"
        return Waiting(JobState.STARTING, words, FailureClass.IMAGE, final)
    if reason in _MISTAKE:
        words = f"starting {age}: the container cannot be made: {message or reason}"
        return Waiting(JobState.STARTING, words, FailureClass.CONFIGURATION, lasting)
    trouble = _latest(sight, _MOUNTS, name_of(pod))
    said = f": {_message(trouble)}" if trouble else ", pulling its image" if _is_pulling(pod, sight) else ""
    return Waiting(JobState.STARTING, f"starting {age} on {node}{said}")


def _is_pulling(pod: Raw, sight: Sight) -> bool:
    pulling, pulled = (_latest(sight, {reason}, name_of(pod)) for reason in ("Pulling", "Pulled"))
    return pulling is not None and pulled is None


def _latest(sight: Sight, reasons: set[str], name: str | None = None) -> Raw | None:
    """The newest event of these reasons about a pod; without its name, about the Job or a JobSet's Jobs."""
    found: Sequence[Raw] = [
        event
        for event in sight.events
        if event.get("reason") in reasons
        and (event["involvedObject"].get("name") == name if name else event["involvedObject"].get("kind") != "Pod")
        and sight.now - _at(event, sight) <= _FRESH
        and (not sight.object or _at(event, sight) >= created(sight.object))
    ]
    return max(found, key=lambda event: _at(event, sight), default=None)


def _at(event: Raw, sight: Sight) -> datetime:
    return event_time(event) or sight.now


def _message(event: Raw) -> str:
    return " ".join((event.get("message") or "").split()).rstrip(".")
