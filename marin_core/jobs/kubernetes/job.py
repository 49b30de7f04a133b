"""The handle of a job on the cluster: what its follower sees, and what has been heard and kept of it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from marin_core.jobs.kubernetes.cluster import Kind
from marin_core.jobs.kubernetes.judge import Verdict
from marin_core.jobs.kubernetes.logs import PodLog
from marin_core.jobs.kubernetes.sight import Ended, Terms
from marin_core.jobs.messages import MessageReader
from marin_core.jobs.spec import JobSpec, JobState, JobStatus


@dataclass
class Memory:
    """What is known of a job beyond what the cluster shows now. The first four belong to whoever holds `judging`, the
    next two to whoever holds `hearing`."""

    uid: str | None = None
    ended: Mapping[str, Ended] = field(default_factory=dict)
    before: Ended | None = None
    started: datetime | None = None
    told: dict[str, str] = field(default_factory=dict)
    readers: dict[str, MessageReader] = field(default_factory=dict)
    logs: dict[str, PodLog] = field(default_factory=dict)
    # Attempts whose log is kept or being kept.
    kept: set[str] = field(default_factory=set)


class KubernetesJob:
    """Handle of a job of `KubernetesLauncher`; `status` costs nothing, the launcher's threads keep it true."""

    def __init__(self, job: JobSpec, kind: Kind, terms: Terms, cancel: Callable[["KubernetesJob"], None]):
        self._job, self._cancel = job, cancel
        self.kind, self.terms = kind, terms
        self.memory = Memory()
        # Held by whoever creates or deletes objects of this job.
        self.acting = threading.RLock()
        # `keeping` by whoever writes logs to the store, or deletes them there.
        self.judging, self.hearing, self.keeping = threading.Lock(), threading.Lock(), threading.Lock()
        # Whether something is being done about the last verdict.
        self.busy = threading.Event()
        self.cancelled = threading.Event()
        self.detached = threading.Event()
        self.submitted = threading.Event()
        self._lock = threading.Lock()
        self._status = JobStatus(JobState.QUEUED)

    @property
    def job(self) -> JobSpec:
        return self._job

    @property
    def is_open(self) -> bool:
        """Whether somebody still follows it and it has not ended."""
        return not self._status.state.is_final and not self.detached.is_set()

    def status(self) -> JobStatus:
        return self._status

    def cancel(self) -> None:
        """Delete the job from the cluster; returns when it is gone."""
        self._cancel(self)

    def detach(self) -> None:
        """Follow it no more, and leave it where it is."""
        self.detached.set()

    def update(self, **changes: Any) -> None:
        """Change fields of the status, which stays as it is once final."""
        self._change(lambda _: changes)

    def say(self, *messages: str) -> None:
        """Add messages to the status, unless it is final."""
        self._change(lambda status: {"messages": (*status.messages, *messages)})

    def link(self, links: Mapping[str, str]) -> None:
        """Add links to the status, unless it is final."""
        self._change(lambda status: {"links": {**status.links, **links}})

    def _change(self, changes: Callable[[JobStatus], Mapping[str, Any]]) -> None:
        with self._lock:
            if self._status.state.is_final:
                return
            status = replace(self._status, **changes(self._status))
            if status.state is JobState.SUCCEEDED:
                # Failed attempts' logs are deleted with everything else that success leaves behind.
                links = {name: url for name, url in status.links.items() if name != "log"}
                status = replace(status, links=links, log_tail=())
            self._status = status

    def show(self, verdict: Verdict, trouble: str | None) -> None:
        """Take a verdict over into the status, behind whatever keeps us from seeing more."""
        reason = f"{trouble}; last known: {verdict.reason or verdict.state.value}" if trouble else verdict.reason
        changes: dict[str, Any] = {"state": verdict.state, "reason": reason, "failure": verdict.failure}
        if self.memory.uid:
            changes |= {"preemptions": verdict.preemptions, "failures": verdict.failures}
        if any(getattr(self._status, name) != value for name, value in changes.items()):
            self.update(**changes)

    def hear(self, pod: str, reader: MessageReader) -> None:
        """Read what a pod has told since."""
        events = reader.read()
        if events.failed:
            self.memory.told[pod] = events.failed
        if events.logs:
            self.say(*events.logs)
        if events.links:
            self.link(events.links)
        if events.progress is not None:
            self.update(progress=events.progress)
