"""Jobs: what runs, on what, how often it may fail; and the launchers that run it."""

from marin_core.jobs.launcher import JobHandle, Launcher, follow
from marin_core.jobs.local import LocalLauncher
from marin_core.jobs.open import open_launcher
from marin_core.jobs.spec import FailureClass, JobFailed, JobSpec, JobState, JobStatus

__all__ = [
    "FailureClass",
    "JobFailed",
    "JobHandle",
    "JobSpec",
    "JobState",
    "JobStatus",
    "Launcher",
    "LocalLauncher",
    "follow",
    "open_launcher",
]
