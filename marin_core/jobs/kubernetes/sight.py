"""What is known of a job on the cluster at one moment: raw objects as the API server gave them, and a clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from marin_core.jobs.kubernetes.times import parse_time
from marin_core.jobs.spec import FailureClass

Raw = Mapping[str, Any]

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "marin-assets"
JOB_LABEL = "marin/job"
PREEMPTIONS = "marin/preemptions"
FAILURES = "marin/failures"
# The cache's own mark on a pod that is no longer there.
GONE_AT = "goneAt"


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: its class, in words, which pod showed it, and when. `is_certain` if the pod said it was
    disrupted, and did not merely end as if it were. `asked_at` is when it was asked to end, if that is all that is
    known of why it did."""

    failure: FailureClass
    words: str
    pod: str
    at: datetime
    is_certain: bool = False
    asked_at: datetime | None = None


@dataclass(frozen=True)
class Terms:
    """What a job may cost, and where it was to run, for the words."""

    max_failures: int
    max_preemptions: int
    pools: tuple[str, ...]
    region: str
    namespace: str
    queue: str | None = None
    max_queue_hours: float | None = None
    max_run_hours: float | None = None


@dataclass(frozen=True)
class Sight:
    """`object` is the Job or JobSet, None where there is none; `gone_since` when it was seen to be deleted.

    `ended` are attempts that earlier sights of this very object told of, `before` the last one of an earlier object.
    `started` is when its first pod was first seen to run. `committed` is whether the store has the artifact's record;
    None if nobody asked yet. `told` has what workers said of their own failure, by pod.
    """

    object: Raw | None
    now: datetime
    pods: tuple[Raw, ...] = ()
    events: tuple[Raw, ...] = ()
    workload: Raw | None = None
    gone_since: datetime | None = None
    ended: Mapping[str, Ended] = field(default_factory=dict)
    before: Ended | None = None
    started: datetime | None = None
    committed: bool | None = None
    told: Mapping[str, str] = field(default_factory=dict)


def name_of(raw: Raw) -> str:
    return raw["metadata"]["name"]


def condition(raw: Raw, kind: str) -> Raw | None:
    """An object's condition of that type, whatever its status."""
    return next((c for c in raw.get("status", {}).get("conditions") or () if c["type"] == kind), None)


def holds(raw: Raw, kind: str) -> Raw | None:
    """An object's condition of that type if its status is True."""
    found = condition(raw, kind)
    return found if found and found["status"] == "True" else None


def is_set(raw: Raw) -> bool:
    return raw.get("kind") == "JobSet"


def created(raw: Raw) -> datetime:
    at = parse_time(raw["metadata"].get("creationTimestamp"))
    assert at, "the API server sets it on every object"
    return at


def belongs(pod: Raw, owner: Raw) -> bool:
    """Whether a pod is of this very object, and not of an earlier one of the same name."""
    owners = pod["metadata"].get("ownerReferences") or ()
    if any(reference["uid"] == owner["metadata"]["uid"] for reference in owners):
        return True
    if not is_set(owner) and owners:
        return False
    return created(pod) >= created(owner)


def recorded(raw: Raw) -> tuple[int, int]:
    """(preemptions, failures) of the objects of this name before this one."""
    notes = raw["metadata"].get("annotations") or {}
    return int(notes.get(PREEMPTIONS, 0)), int(notes.get(FAILURES, 0))


def pod_index(pod: Raw) -> tuple[int, int]:
    """(slice, index within it); a server that does not index pods has only (0, 0)."""
    labels = pod["metadata"].get("labels") or {}
    index = labels.get("batch.kubernetes.io/job-completion-index", 0)
    return int(labels.get("jobset.sigs.k8s.io/job-index", 0)), int(index)


def deletion_began(pod: Raw) -> datetime | None:
    """When somebody asked for the pod's deletion; its timestamp is when its grace ends."""
    end = parse_time(pod["metadata"].get("deletionTimestamp"))
    grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return end - timedelta(seconds=grace) if end else None


def container(pod: Raw) -> Raw:
    """Status of the worker's container, empty before there is one."""
    return next(iter(pod.get("status", {}).get("containerStatuses") or ()), {})


def event_time(event: Raw) -> datetime | None:
    series = event.get("series") or {}
    return parse_time(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
