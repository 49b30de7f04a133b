"""The latest raw objects of every job in a namespace, by the job's name: what the watches write and the judge reads."""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from marin_core.jobs.kubernetes.cluster import EVENTS, JOBS, JOBSETS, PODS, WORKLOADS, Kind
from marin_core.jobs.kubernetes.sight import GONE_AT, JOB_LABEL, Raw, Sight, event_time, name_of
from marin_core.jobs.kubernetes.times import parse_time

# A gang's pods are compared with each other after they are gone, for as long as a lost node takes to be told.
_KEEP_GONE = timedelta(minutes=15)
_KEEP_EVENTS = timedelta(hours=1)
_MOST_EVENTS = 40
# Names that only events mention: of jobs to come, and of those that are over.
_MOST_UNKNOWN = 2000


@dataclass
class _Entry:
    object: dict[str, Any] | None = None
    # When the object was put here by us; a list that was asked for before does not know it.
    put_at: float = 0.0
    gone_since: datetime | None = None
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    workload: dict[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        return self.object is None and self.workload is None and not self.pods


class Cache:
    """Thread-safe. Keeps what the cluster has; of what is gone only the jobs that are followed, until `forget`."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._followed: set[str] = set()
        self._changed = threading.Condition()
        self._dirty: set[str] = set()

    def follow(self, name: str) -> None:
        with self._changed:
            self._followed.add(name)
            self._touch(name)

    def forget(self, name: str) -> None:
        """Drop all that is known of a job, and follow it no more."""
        with self._changed:
            self._followed.discard(name)
            self._dirty.discard(name)
            self._entries.pop(name, None)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take_changed(self, timeout: float) -> set[str]:
        """Followed jobs that changed since the last call; waits for one."""
        with self._changed:
            if not self._dirty:
                self._changed.wait(timeout)
            changed, self._dirty = self._dirty, set()
            return changed

    def sight(self, name: str, now: datetime) -> Sight:
        with self._changed:
            entry = self._entries.get(name) or _Entry()
            return Sight(
                object=entry.object,
                now=now,
                pods=tuple(entry.pods.values()),
                events=tuple(entry.events.values()),
                workload=entry.workload,
                gone_since=entry.gone_since,
            )

    def put(self, item: dict[str, Any], at: float) -> None:
        """What a create or a read answered; the watch may tell of it later. `at` is of a monotonic clock."""
        with self._changed:
            entry = self._entry(name_of(item))
            entry.object, entry.gone_since, entry.put_at = item, None, at
            self._touch(name_of(item))

    def apply(self, kind: Kind, change: str, item: dict[str, Any], now: datetime) -> None:
        """One event of a watch: ADDED, MODIFIED or DELETED."""
        with self._changed:
            for name in self._names(kind, item):
                self._apply(kind, name, change == "DELETED", item, now)
                self._touch(name)

    def replace(self, kind: Kind, items: Iterable[dict[str, Any]], asked_at: float, now: datetime) -> None:
        """A complete list: what it lacks is gone."""
        with self._changed:
            seen: set[str] = set()
            for item in items:
                seen.add(item["metadata"]["uid"])
                for name in self._names(kind, item):
                    self._apply(kind, name, False, item, now)
                    self._touch(name)
            for name, entry in list(self._entries.items()):
                for item in list(self._missing(kind, entry, seen, asked_at)):
                    self._apply(kind, name, True, item, now)
                    self._touch(name)

    def learn(self, name: str, kind: Kind, pods: Iterable[dict[str, Any]], found: dict[str, Any] | None) -> None:
        """What a read beside the watches answered of one job: nothing that they know better, and nothing of what is
        gone."""
        with self._changed:
            if name not in self._followed:
                return
            entry = self._entry(name)
            for pod in pods:
                held = entry.pods.get(pod["metadata"]["uid"])
                if held is None or (GONE_AT not in held and _version(pod) >= _version(held)):
                    entry.pods[pod["metadata"]["uid"]] = _slim(pod)
            held = entry.object
            same = found and held and found["metadata"]["uid"] == held["metadata"]["uid"]
            if found and held and same and _version(found) >= _version(held):
                entry.object = _slim({"kind": "JobSet" if kind is JOBSETS else "Job", **found})
            self._touch(name)

    def _missing(self, kind: Kind, entry: _Entry, seen: set[str], asked_at: float) -> Iterator[dict[str, Any]]:
        if kind is PODS:
            yield from (pod for uid, pod in entry.pods.items() if uid not in seen and GONE_AT not in pod)
        held = entry.workload if kind is WORKLOADS else entry.object if entry.put_at < asked_at else None
        if kind in (JOBS, JOBSETS) and held and (held["kind"] == "JobSet") != (kind is JOBSETS):
            return
        if kind in (JOBS, JOBSETS, WORKLOADS) and held and held["metadata"]["uid"] not in seen:
            yield held

    def _names(self, kind: Kind, item: Raw) -> Iterable[str]:
        if kind is EVENTS:
            return _job_names(item["involvedObject"].get("name", ""))
        if kind is WORKLOADS:
            return {owner["name"] for owner in item["metadata"].get("ownerReferences") or ()}
        name = (item["metadata"].get("labels") or {}).get(JOB_LABEL)
        # The Jobs of a JobSet have its labels too.
        return {name} if name and (kind is PODS or name == name_of(item)) else ()

    def _apply(self, kind: Kind, name: str, gone: bool, item: dict[str, Any], now: datetime) -> None:
        entry = self._entry(name)
        if kind is EVENTS:
            if not gone:
                _add_event(entry, item, now)
            self._drop_unknown()
        elif kind is WORKLOADS:
            entry.workload = None if gone else _slim(item)
        elif kind is PODS:
            self._apply_pod(entry, name, gone, item, now)
        elif not gone:
            item.setdefault("kind", "JobSet" if kind is JOBSETS else "Job")
            entry.object, entry.gone_since = _slim(item), None
        elif entry.object is None or entry.object["metadata"]["uid"] == item["metadata"]["uid"]:
            entry.object, entry.gone_since = None, now
        if entry.is_empty and name not in self._followed and kind is not EVENTS:
            self._entries.pop(name, None)

    def _apply_pod(self, entry: _Entry, name: str, gone: bool, pod: dict[str, Any], now: datetime) -> None:
        uid = pod["metadata"]["uid"]
        if not gone:
            entry.pods[uid] = _slim(pod)
        elif name in self._followed:
            entry.pods[uid] = {**_slim(pod), GONE_AT: now.isoformat()}
        else:
            entry.pods.pop(uid, None)
        old = [u for u, p in entry.pods.items() if GONE_AT in p and now - (parse_time(p[GONE_AT]) or now) > _KEEP_GONE]
        for uid in old:
            del entry.pods[uid]

    def _drop_unknown(self) -> None:
        if len(self._entries) <= _MOST_UNKNOWN + len(self._followed):
            return
        unknown = [name for name, entry in self._entries.items() if entry.is_empty and name not in self._followed]
        for name in unknown[: len(unknown) - _MOST_UNKNOWN // 2]:
            del self._entries[name]

    def _entry(self, name: str) -> _Entry:
        return self._entries.setdefault(name, _Entry())

    def _touch(self, name: str) -> None:
        if name in self._followed:
            self._dirty.add(name)
            self._changed.notify_all()


def _job_names(name: str) -> set[str]:
    """Names of ours that an object's name may begin with: they end with eight hex digits. Kueue puts the kind first."""
    name = re.sub(r"^(job|jobset)-", "", name) if not re.match(r"^(job|jobset)-[0-9a-f]{8}(-|$)", name) else name
    return {name[: match.end(1)] for match in re.finditer(r"(?<=-)([0-9a-f]{8})(?=-|$)", name)}


def _add_event(entry: _Entry, event: dict[str, Any], now: datetime) -> None:
    """The latest of each reason about each object, of the last hour."""
    if now - (event_time(event) or now) > _KEEP_EVENTS:
        return
    key = (event["involvedObject"].get("name", ""), event.get("reason", ""))
    # Taken out first, so that the order of the table is that of time.
    entry.events.pop(key, None)
    entry.events[key] = _slim(event)
    while len(entry.events) > _MOST_EVENTS:
        del entry.events[next(iter(entry.events))]


def _version(item: Raw) -> int:
    """Versions of one object are numbers that grow."""
    version = item["metadata"].get("resourceVersion", "")
    return int(version) if version.isdigit() else 0


def _slim(item: Mapping[str, Any]) -> dict[str, Any]:
    """Without what nobody here reads and is most of the bytes."""
    metadata = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
    slim = {**item, "metadata": metadata}
    if item.get("kind") in (None, "Pod") and "containers" in (item.get("spec") or {}):
        spec = item["spec"]
        containers = [{k: c[k] for k in ("name", "image", "resources") if k in c} for c in spec["containers"]]
        slim["spec"] = {"nodeName": spec.get("nodeName"), "containers": containers}
    elif "template" in (item.get("spec") or {}) or "replicatedJobs" in (item.get("spec") or {}):
        slim["spec"] = {k: v for k, v in item["spec"].items() if k not in ("template", "replicatedJobs")}
    return slim
