"""A job before and while it runs: the request and the one state machine that all launchers report in."""

import enum
from dataclasses import dataclass
from typing import Any

from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec


class JobFailed(MarinError):
    """A job ended without committing its artifact."""


class JobState(enum.Enum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "failed, retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class JobSpec:
    """Build one artifact in a worker.

    `pool` is what it runs on: here `cpu-N`, a process with N threads. `max_failures` is how often the worker may die
    before the job has failed; an error that the task itself reports is final at once.
    """

    artifact: ArtifactSpec
    pool: str
    max_failures: int = 1

    @property
    def name(self) -> str:
        """The same work always has the same name."""
        stem = self.artifact.partition or self.artifact.name.replace("/", "-")
        return f"{stem}-{self.artifact.fingerprint[:8]}"


@dataclass(frozen=True)
class JobStatus:
    """`reason` is in words that a person can act on; `progress` is the latest report of a training task, as JSON;
    `messages` counts up with what the task logged."""

    state: JobState
    reason: str = ""
    progress: dict[str, Any] | None = None
    messages: tuple[str, ...] = ()
    retries: int = 0
