"""A job before and while it runs: the request and the one state machine that all launchers report in."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec

# Exit code of a worker whose task itself reported an error (EX_DATAERR): trying again changes nothing.
EXIT_REFUSED = 65
# Exit code of a worker that SIGTERM ended, as a shell would report it.
EXIT_TERMINATED = 143
# Exit code of a member of a gang whose others did not come in time (EX_TEMPFAIL).
EXIT_PEERS_MISSING = 75
# Ends that something outside the worker brought about; no failures of its own.
OUTSIDE_EXITS = (EXIT_TERMINATED, EXIT_PEERS_MISSING)

# Kubernetes names end at 63 characters; a JobSet appends the numbers of its jobs and pods.
_LONGEST_STEM = 36


class JobState(enum.Enum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PREEMPTED = "preempted, retrying"
    RETRYING = "failed, retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class FailureClass(enum.Enum):
    """Why an attempt ended, or why a job cannot start. The first two spend the budget of preemptions, the rest that of
    failures; `CONFIGURATION`, `IMAGE` and `REFUSED` are final at once, since trying again changes nothing.
    `INFRASTRUCTURE` is what the place did to the job: a store that failed, a process that somebody killed."""

    PREEMPTED = "preempted"
    EVICTED = "evicted"
    OUT_OF_MEMORY = "out of memory"
    APPLICATION = "application error"
    IMAGE = "image cannot be pulled"
    CONFIGURATION = "configuration"
    REFUSED = "refused by the task"
    DELETED = "deleted from outside"
    INFRASTRUCTURE = "infrastructure"
    UNKNOWN = "unknown"

    @property
    def is_disruption(self) -> bool:
        return self in (FailureClass.PREEMPTED, FailureClass.EVICTED)

    @property
    def is_final(self) -> bool:
        return self in (FailureClass.IMAGE, FailureClass.CONFIGURATION, FailureClass.REFUSED, FailureClass.DELETED)


@dataclass(frozen=True)
class JobSpec:
    """Build one artifact in a worker.

    `pools` are what it may run on, all of them equal to it: `cpu-N`, `h100-8`, `v5p-64`, `4xv6e-256` (see `pools.py`).
    Two budgets: how often it may be disrupted (`max_preemptions`), and how often its worker may die by itself
    (`max_failures`) before the job has failed; an error that the task itself reports is final at once. `ranks` is the
    number of processes that share the items of a data stage.
    """

    artifact: ArtifactSpec
    pools: tuple[str, ...]
    max_failures: int = 1
    max_preemptions: int = 100
    ranks: int = 1

    @property
    def name(self) -> str:
        """The same work always has the same name: lower case letters, digits and `-`, short enough for Kubernetes."""
        artifact = self.artifact
        stem = f"{artifact.name}-{artifact.partition}" if artifact.partition else artifact.name
        stem = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
        return f"{stem[:_LONGEST_STEM].strip('-')}-{artifact.fingerprint[:8]}"


@dataclass(frozen=True)
class JobStatus:
    """`reason` is in words that a person can act on; `failure` its class, where something is wrong.

    `progress` is the latest report of the task, as JSON; `messages` counts up with what the task logged; `links` names
    URLs worth following (logs, a tracker's page); `log_tail` holds the last lines of the process that failed.
    """

    state: JobState
    reason: str = ""
    failure: FailureClass | None = None
    progress: Mapping[str, Any] | None = None
    messages: tuple[str, ...] = ()
    preemptions: int = 0
    failures: int = 0
    links: Mapping[str, str] = field(default_factory=dict)
    log_tail: tuple[str, ...] = ()

    @property
    def retries(self) -> int:
        """Attempts after the first."""
        return self.preemptions + self.failures


class JobFailed(MarinError):
    """Jobs ended without committing their artifacts. `failed` has their last status by the artifact's label."""

    def __init__(self, failed: Mapping[str, JobStatus]):
        super().__init__("; ".join(f"{label}: {status.reason}" for label, status in failed.items()))
        self.failed = failed
