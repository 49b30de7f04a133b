"""Why attempts ended: from pods that are over to one class for each attempt.

A pod of a Job is an attempt of its own. The pods of a gang live and die together, and are one attempt for each restart
of their JobSet. Disruptions show in several ways, not all of them on every server and not all at once; what a pod says
in a condition or status reason of its own is taken before what its exit code says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from marin_core.jobs.kubernetes.sight import (
    GONE_AT,
    Ended,
    Raw,
    Sight,
    belongs,
    condition,
    container,
    created,
    deletion_began,
    event_time,
    holds,
    is_set,
    name_of,
    recorded,
)
from marin_core.jobs.kubernetes.times import parse_time
from marin_core.jobs.kubernetes.waiting import what_holds
from marin_core.jobs.spec import EXIT_PEERS_MISSING, EXIT_REFUSED, EXIT_TERMINATED, FailureClass

# A gang whose member was disrupted loses its other members within this time: JAX waits 100 s for a heartbeat.
SIBLING_WINDOW = timedelta(seconds=120)

# A node that is silent for longer has lost its pods, by default after five minutes. Their peers die long before that is
# said of them.
_EVICTION = timedelta(minutes=10)

RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"

# `status.reason` of pods that a kubelet, a scheduler or a controller ended; the last five are of pods that a node
# refused when they came to it.
_EVICTED = {"Evicted"}
_PREEMPTED = {
    "Preempted",
    "Preempting",
    "Shutdown",
    "NodeShutdown",
    "NodeLost",
    "NodeAffinity",
    "Terminated",
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "OutOfephemeral-storage",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": (FailureClass.PREEMPTED, "preempted by a pod of higher priority"),
    "DeletionByTaintManager": (FailureClass.PREEMPTED, "its node was tainted or lost"),
    "EvictionByEvictionAPI": (FailureClass.EVICTED, "evicted, for instance by a drain of its node"),
    "DeletionByPodGC": (FailureClass.PREEMPTED, "its node is gone"),
    "TerminationByKubelet": (FailureClass.PREEMPTED, "ended by its node"),
}
# Evictions that the pod itself brought about, and would again.
_OWN_DISK = re.compile(r"exceeds the (total )?limit", re.I)
_OWN_USE = re.compile(
    r"low on resource: ([\w-]+).*Container worker was using ([\w.]+), request is (\w+(?:\.\w+)?)", re.I
)
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kKMGTPE]i?)?")


@dataclass(frozen=True)
class _PodEnd:
    """`strength`: 2 for a disruption that says so itself, 1 for a pod that was merely asked to end or whose peers were
    missing, 0 for an end of its own. `asked_at` is when it was asked to."""

    failure: FailureClass
    words: str
    pod: str
    at: datetime
    strength: int = 0
    asked_at: datetime | None = None


def attempts(sight: Sight) -> dict[str, Ended]:
    """Every attempt of the object that has ended, by an id of its own. An attempt once known to be a disruption stays
    one when the pods that showed it are gone; one of a pod that was asked to end is none once the object's own end
    turns out to have come first."""
    if sight.object is None:
        return dict(sight.ended)
    pods = [pod for pod in sight.pods if belongs(pod, sight.object)]
    found = _of_gang(sight, pods) if is_set(sight.object) else _of_pods(sight, pods)
    merged = dict(sight.ended)
    for key, ended in found.items():
        before = merged.get(key)
        if before and before.is_certain and ended.failure is not FailureClass.REFUSED:
            continue
        merged[key] = ended
    if found:
        merged.pop(object_end(sight.object), None)
    over = None if is_set(sight.object) else _over_since(sight.object)
    return {key: end for key, end in merged.items() if not (over and end.asked_at and end.asked_at >= over)}


def object_end(raw: Raw) -> str:
    """Id of the end of an object that no pod was seen to explain."""
    return f"{raw['metadata']['uid']}/object"


def last_of(ended: Mapping[str, Ended]) -> Ended | None:
    """The end that tells how the job stands: a final one, else the latest. A pod that was asked to end when another had
    just ended by itself went with that one."""
    ordered = sorted(ended.values(), key=lambda end: end.at)
    final = [end for end in ordered if end.failure.is_final]
    if final or not ordered:
        return final[0] if final else None
    last = ordered[-1]
    if not (asked_at := last.asked_at):
        return last
    causes = [end for end in ordered if not end.asked_at and abs(asked_at - end.at) <= SIBLING_WINDOW]
    return causes[-1] if causes else last


def counts(sight: Sight, ended: dict[str, Ended]) -> tuple[int, int]:
    """(preemptions, failures) of the job, with those of earlier objects of its name. Restarts that nobody watched were
    preemptions as far as anybody knows."""
    if sight.object is None:
        before, unseen = (0, 0), 0
    else:
        before = recorded(sight.object)
        restarts = sight.object.get("status", {}).get("restarts", 0) if is_set(sight.object) else 0
        unseen = max(0, restarts - len(ended))
    disrupted = sum(end.failure.is_disruption for end in ended.values())
    return before[0] + disrupted + unseen, before[1] + len(ended) - disrupted


def is_settled(sight: Sight) -> bool:
    """Whether the class of a gang's last attempt can still change: a member that still runs may turn out to have been
    on a lost node."""
    assert sight.object
    if not is_set(sight.object):
        return True
    pods = [pod for pod in sight.pods if belongs(pod, sight.object)]
    ends = [end for pod in pods if (end := pod_end(pod, sight.events))]
    if not ends or any(end.strength == 2 for end in ends):
        return True
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running" and GONE_AT not in pod]
    # What runs on a node that fell silent is no longer ready, and is evicted late.
    silent = any((condition(pod, "Ready") or {}).get("status") in ("False", "Unknown") for pod in running)
    return not running or sight.now - max(end.at for end in ends) > (_EVICTION if silent else SIBLING_WINDOW)


def pod_end(pod: Raw, events: Sequence[Raw]) -> _PodEnd | None:
    """How a pod ended that did not succeed; None while it has not."""
    status = pod.get("status", {})
    over = status.get("phase") == "Failed" or GONE_AT in pod
    if not over or status.get("phase") == "Succeeded":
        return None
    exited = container(pod).get("state", {}).get("terminated")
    code = exited and exited.get("exitCode")
    at, name = _end_time(pod), name_of(pod)
    if code == EXIT_REFUSED:
        return _PodEnd(FailureClass.REFUSED, "the task refused", name, at)
    disruption = _disruption(pod, events, at)
    if disruption:
        return _PodEnd(*disruption, name, at, 2 if disruption[0].is_disruption else 0)
    if exited and exited.get("reason") == "OOMKilled":
        return _PodEnd(FailureClass.OUT_OF_MEMORY, f"out of memory: it needed more than {_memory(pod)}", name, at)
    if code == EXIT_PEERS_MISSING:
        return _PodEnd(FailureClass.PREEMPTED, "its peers did not come within 10 min", name, at, 1)
    if _was_asked_to_end(pod, code, at):
        asked_at = deletion_began(pod) or at
        return _PodEnd(FailureClass.PREEMPTED, f"pod {name} was asked to end", name, at, 1, asked_at)
    return _PodEnd(*_own_end(status, exited), name, at)


def _end_time(pod: Raw) -> datetime:
    """Of a pod whose node is lost nobody sees the worker end; what the pod says of its disruption comes next."""
    exited = container(pod).get("state", {}).get("terminated") or {}
    disrupted = holds(pod, "DisruptionTarget") or {}
    told = exited.get("finishedAt") or disrupted.get("lastTransitionTime") or pod.get(GONE_AT)
    return parse_time(told) or deletion_began(pod) or created(pod)


def _was_asked_to_end(pod: Raw, code: int | None, at: datetime) -> bool:
    began = deletion_began(pod)
    if code is None:
        return GONE_AT in pod
    if code == 137 and (began or GONE_AT in pod):
        return not began or began <= at
    # Times are whole seconds: a pod that fails is soon deleted, and with any other exit code it failed first.
    return code == EXIT_TERMINATED or (began is not None and began < at)


def _disruption(pod: Raw, events: Sequence[Raw], at: datetime) -> tuple[FailureClass, str] | None:
    status = pod.get("status", {})
    reason, message = status.get("reason") or "", " ".join((status.get("message") or "").split())
    said = f" ({reason}: {message})" if message else f" ({reason})" if reason else ""
    if reason in _EVICTED and _OWN_DISK.search(message):
        return FailureClass.APPLICATION, f"it used more scratch space than its limit{said}"
    if reason in _EVICTED and (own := _overuse(message)):
        return own, f"evicted for using more than it asked for{said}"
    if reason in _EVICTED:
        return FailureClass.EVICTED, f"evicted by its node{said}"
    if target := holds(pod, "DisruptionTarget"):
        kind = (FailureClass.PREEMPTED, "disrupted")
        failure, words = _DISRUPTIONS.get(target.get("reason", ""), kind)
        if not said and target.get("message"):
            said = f" ({target.get('reason')}: {' '.join(target['message'].split())})"
        return failure, words + said
    if reason in _PREEMPTED:
        return FailureClass.PREEMPTED, f"ended by its node{said}"
    if _node_lost(pod, events, at):
        node = pod.get("spec", {}).get("nodeName", "its node")
        return FailureClass.PREEMPTED, f"node {node} was lost"
    return None


def _overuse(message: str) -> FailureClass | None:
    """The class of an eviction from a full node, if the worker used more than its request."""
    found = _OWN_USE.search(message)
    if not found or _quantity(found.group(2)) <= _quantity(found.group(3)):
        return None
    return FailureClass.OUT_OF_MEMORY if found.group(1) == "memory" else FailureClass.APPLICATION


def _quantity(text: str) -> float:
    """A Kubernetes quantity as a number; 0 if it is none."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        return 0.0
    number, unit = float(found.group(1)), found.group(2)
    if not unit or unit == "m":
        return number * (1e-3 if unit else 1)
    return number * (1024 if unit.endswith("i") else 1000) ** (1 + "KMGTPE".index(unit[0].upper()))


def _node_lost(pod: Raw, events: Sequence[Raw], at: datetime) -> bool:
    """The node controller marks the pods of a silent node as not ready, long before it evicts them."""
    return any(
        event.get("reason") == "NodeNotReady"
        and event["involvedObject"].get("name") == name_of(pod)
        and created(pod) <= (event_time(event) or at)
        and abs((event_time(event) or at) - at) <= _EVICTION
        for event in events
    )


def _own_end(status: Raw, exited: Raw | None) -> tuple[FailureClass, str]:
    if exited is None:
        reason = status.get("reason") or "no reason given"
        return (
            FailureClass.UNKNOWN,
            f"the pod failed before its worker ran: {reason} {status.get('message') or ''}".strip(),
        )
    code, reason = exited.get("exitCode"), exited.get("reason")
    if reason in ("StartError", "ContainerCannotRun"):
        said = " ".join((exited.get("message") or "").split())
        return FailureClass.CONFIGURATION, f"the worker's command cannot be started: {said or reason}"
    if code == 137:
        return FailureClass.APPLICATION, "the worker was killed (SIGKILL; out of memory?)"
    if code == 0:
        return (
            FailureClass.UNKNOWN,
            f"the pod failed although its worker exited 0: {status.get('reason') or 'no reason'}",
        )
    return FailureClass.APPLICATION, f"the worker ended with exit code {code}"


def _memory(pod: Raw) -> str:
    containers = pod.get("spec", {}).get("containers") or ({},)
    limit = containers[0].get("resources", {}).get("limits", {}).get("memory")
    return f"its limit of {limit}" if limit else "its node has (no limit is set)"


def _of_pods(sight: Sight, pods: Sequence[Raw]) -> dict[str, Ended]:
    return {
        pod["metadata"]["uid"]: Ended(end.failure, end.words, end.pod, end.at, end.strength == 2, end.asked_at)
        for pod in pods
        if (end := pod_end(pod, sight.events))
    }


def _over_since(job: Raw) -> datetime | None:
    """When a Job began to clean up after its failure: since Kubernetes 1.31 it says `FailureTarget` and ends its pods,
    and `Failed` when the last of them is gone."""
    found = [holds(job, kind) for kind in ("FailureTarget", "Failed")]
    return min((at for one in found if one and (at := parse_time(one.get("lastTransitionTime")))), default=None)


def _of_gang(sight: Sight, pods: Sequence[Raw]) -> dict[str, Ended]:
    assert sight.object
    uid, restarts = sight.object["metadata"]["uid"], sight.object.get("status", {}).get("restarts", 0)
    by_attempt: dict[int, list[Raw]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        by_attempt.setdefault(int(labels.get(RESTART_ATTEMPT, 0)), []).append(pod)
    found = {}
    for attempt, members in by_attempt.items():
        ended = _gang_end([end for pod in members if (end := pod_end(pod, sight.events))])
        if ended:
            found[f"{uid}/{attempt}"] = replace(ended, words=ended.words + _why_missing(ended, members))
        elif attempt < restarts and all(GONE_AT in pod for pod in members):
            found[f"{uid}/{attempt}"] = Ended(
                FailureClass.PREEMPTED, "its pods were taken away", name_of(members[0]), sight.now
            )
    return found


def _why_missing(ended: Ended, members: Sequence[Raw]) -> str:
    """What the members that never ran waited for, if that is why the others ended."""
    cause = next(pod for pod in members if name_of(pod) == ended.pod)
    code = (container(cause).get("state", {}).get("terminated") or {}).get("exitCode")
    waiting = [pod for pod in members if pod.get("status", {}).get("phase") in (None, "Pending")]
    if code != EXIT_PEERS_MISSING or ended.is_certain or not waiting:
        return ""
    return f"; pod {name_of(waiting[0])} {what_holds(waiting[0])}"


def _gang_end(ends: Sequence[_PodEnd]) -> Ended | None:
    """One class for all members. The first that ended by itself took the others with it, unless a node did."""
    if not ends:
        return None
    ends = sorted(ends, key=lambda end: end.at)
    own = [end for end in ends if end.strength == 0]
    refused = next((end for end in own if end.failure is FailureClass.REFUSED), None)
    strong = [end for end in ends if end.strength == 2]
    if refused:
        cause = refused
    elif own and strong:
        near = [end for end in strong if -SIBLING_WINDOW <= end.at - own[0].at <= _EVICTION]
        cause = near[0] if near else own[0]
    else:
        cause = (strong or own or ends)[0]
    words = f"{cause.words} (pod {cause.pod})" if cause.pod not in cause.words else cause.words
    return Ended(cause.failure, words, cause.pod, cause.at, cause.strength == 2)
