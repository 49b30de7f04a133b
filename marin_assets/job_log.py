"""What of a job's life goes to Dagster's event log: what the task says, changes of state, why it waits, and now and
then its progress.

Dagster keeps every event for ever, so a job of days must not tell more than one of minutes can afford: what repeats is
told at times that grow apart.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marin_core.jobs import JobSpec, JobState, JobStatus

_FIRST_AFTER_SECONDS = 30.0
_GROWTH = 1.4
_MOST_REASONS = 100
# What Dagster keeps of one job, about a kilobyte of it for each line; what follows is in the job's own log.
_MOST_BYTES = 50_000
_BYTES_PER_LINE = 1000


@dataclass
class _Turn:
    """When something that repeats may be told again."""

    last: float
    pause: float = _FIRST_AFTER_SECONDS

    def is_due(self, now: float) -> bool:
        if now - self.last < self.pause:
            return False
        self.last, self.pause = now, self.pause * _GROWTH
        return True


@dataclass
class _Told:
    """What the log has heard of one job."""

    progress: _Turn
    messages: int = 0
    state: JobState | None = None
    retries: int = 0
    bytes: int = 0


class JobLog:
    """Writes to `log`, which has the methods of a logger, what a reader of the run wants to find later."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic):
        self._log, self._clock = log, clock
        self._told: dict[str, _Told] = {}
        # Why jobs wait, numbers aside: many wait for the same, which is told once for all of them.
        self._reasons: dict[str, _Turn] = {}
        self._waiting: dict[str, str] = {}

    def update(self, job: JobSpec, status: JobStatus) -> None:
        """A job's status changed."""
        name = job.artifact.label
        told = self._told.setdefault(name, _Told(_Turn(self._clock())))
        for message in status.messages[told.messages :]:
            self._say(name, logging.INFO, message)
        told.messages = len(status.messages)
        if status.state in (JobState.QUEUED, JobState.STARTING) and status.reason:
            self._tell_waiting(name, status.reason)
        else:
            self._waiting.pop(name, None)
            self._tell(name, told, status)
        told.state, told.retries = status.state, status.retries

    def _tell(self, name: str, told: _Told, status: JobStatus) -> None:
        is_new = (status.state, status.retries) != (told.state, told.retries)
        if status.retries > told.retries and status.state in (JobState.RUNNING, JobState.SUCCEEDED):
            # The cluster was faster than anybody's look.
            counts = f"{status.preemptions} preemptions, {status.failures} failures so far"
            self._say(name, logging.WARNING, f"{name}: was started again ({counts})")
        match status.state:
            case JobState.FAILED:
                self._log.error(f"{name} failed: {status.reason}")
            case JobState.PREEMPTED | JobState.RETRYING if is_new:
                self._say(name, logging.WARNING, f"{name}: {status.state.value}: {status.reason}")
            case JobState.RUNNING if is_new and status.reason:
                self._say(name, logging.INFO, f"{name}: running {status.reason}")
            case JobState.RUNNING if status.progress and told.progress.is_due(self._clock()):
                self._say(name, logging.INFO, f"{name}: {progress_text(status.progress)}")

    def _say(self, name: str, level: int, text: str) -> None:
        told = self._told[name]
        if told.bytes > _MOST_BYTES:
            return
        told.bytes += _BYTES_PER_LINE + len(text.encode())
        if told.bytes > _MOST_BYTES:
            text = f"{name} has told much; what it tells from now on is in its own log"
        self._log.log(level, text)

    def _tell_waiting(self, name: str, reason: str) -> None:
        """A reason that is new is told at once, one that still holds now and then."""
        kind = re.sub(r"[0-9]+", "#", reason)
        self._waiting[name] = kind
        if kind not in self._reasons:
            if len(self._reasons) == _MOST_REASONS:
                return
            self._reasons[kind] = _Turn(self._clock())
        elif not self._reasons[kind].is_due(self._clock()):
            return
        others = sum(other == kind for other in self._waiting.values()) - 1
        self._say(name, logging.INFO, f"{name}{f' and {others} more' if others else ''}: {reason}")


def progress_text(now: Mapping[str, Any]) -> str:
    """A task's progress in a few words: of a data stage its phase and items, of a training run its step and pace."""
    if "phase" in now:
        return f"{now['phase']} {now['done']}/{now['items']}"
    text = f"step {now['step']}/{now['steps']}  loss {now['loss']:.3f}  {now['tokens_per_second']:,.0f} tokens/s"
    if now.get("mfu") is not None:
        text += f"  MFU {now['mfu']:.1%}"
    if now.get("seconds_left"):
        text += f"  {duration(now['seconds_left'])} left"
    return text


def duration(seconds: float) -> str:
    """`45 s`, `12 min 05 s`, `3 h 20 min`, `2 d 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
