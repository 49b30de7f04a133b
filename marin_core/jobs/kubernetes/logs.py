"""Logs of pods: each line once, however often the connection breaks, within a fixed number of requests a minute."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from marin_core.jobs.kubernetes.cluster import PODS, ApiError, Cluster, Unreachable

# Lines that are kept of a pod that failed.
KEPT_LINES = 200
_READ_TIMEOUT = 30.0


class RequestBudget:
    """So many requests a minute over all jobs; `burst` of them may come at once."""

    def __init__(self, per_minute: float, burst: float = 1.0):
        self._rate, self._burst = per_minute / 60, burst
        self._tokens, self._filled = burst, time.monotonic()
        self._lock = threading.Lock()

    def take(self, timeout: float) -> bool:
        """Wait for one's turn, at most so many seconds; whether it came."""
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                now = time.monotonic()
                self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
                self._filled = now
                if self._tokens >= 1:
                    self._tokens -= 1
                    return True
                wait = (1 - self._tokens) / self._rate
            if now + wait > deadline:
                return False
            time.sleep(wait)


class PodLog:
    """A cursor in the log of one pod, which appends what is new to a file, with its timestamps.

    The API takes times to the second only, so each read asks again for the last second and leaves out what it has.
    """

    def __init__(self, cluster: Cluster, namespace: str, pod: str, file: Path):
        self._cluster, self._path, self._file = cluster, f"{PODS.path(namespace, pod)}/log", file
        # Lines of the last second that was read, in order.
        self._recent: list[bytes] = []
        self._begun = False
        self._lock = threading.Lock()
        self.tail: deque[str] = deque(maxlen=KEPT_LINES)

    def read(self, *, is_over: bool = False) -> str | None:
        """Append what is new. Returns why it could not be read to its end, if so; nothing is lost by that.

        `is_over` says that the pod writes no more, so that a last line without an end is a line.
        """
        with self._lock:
            query: dict[str, str | int] = {"timestamps": "true"}
            if self._recent:
                query["sinceTime"] = f"{_second(self._recent[-1]).decode()}Z"
            try:
                stream = self._cluster.open(self._path, query, _READ_TIMEOUT)
            except (ApiError, Unreachable) as error:
                return str(error)
            try:
                self._append(_new_lines(self._recent, stream))
            except Unreachable as error:
                return str(error)
            finally:
                stream.close()
            if is_over and stream.rest and self._recent[-1:] != [stream.rest]:
                self._append([stream.rest])
            return None

    def _append(self, lines: Iterable[bytes]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file, "ab" if self._begun else "wb") as file:
            self._begun = True
            for line in lines:
                file.write(line + b"\n")
                if self._recent and _second(line) != _second(self._recent[-1]):
                    self._recent = []
                self._recent.append(line)
                self.tail.append(line.partition(b" ")[2].decode(errors="replace"))


def _new_lines(seen: Sequence[bytes], lines: Iterable[bytes]) -> Iterable[bytes]:
    """The lines after those that were seen: the answer begins with a suffix of these, the whole of it unless the log
    was rotated meanwhile. An answer that a proxy cut short ends among those that were seen."""
    seen, known = tuple(seen), []
    remaining = iter(lines)
    for line in remaining:
        known.append(line)
        if len(known) == len(seen):
            break
    if len(known) < len(seen) and tuple(known) == seen[: len(known)]:
        return
    overlap = next(n for n in range(min(len(seen), len(known)), -1, -1) if tuple(known[:n]) == seen[len(seen) - n :])
    yield from known[overlap:]
    yield from remaining


def _second(line: bytes) -> bytes:
    """The line's time up to the second: `2026-01-31T12:00:00`."""
    return line[:19]


class LogReader:
    """Reads the logs of running pods in turn, in a thread of its own: more pods are read less often, not more."""

    def __init__(self, per_minute: float = 30.0):
        self._budget = RequestBudget(per_minute)
        self._waiting: deque[PodLog] = deque()
        self._ending: set[PodLog] = set()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="pod-logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def add(self, log: PodLog) -> None:
        with self._changed:
            self._waiting.append(log)
            self._changed.notify()

    def end(self, log: PodLog) -> None:
        """The pod writes no more: read its log once more, to its end."""
        with self._changed:
            if log in self._waiting:
                self._ending.add(log)

    def remove(self, log: PodLog) -> None:
        with self._changed:
            self._ending.discard(log)
            with contextlib.suppress(ValueError):
                self._waiting.remove(log)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped)
                if self._stopped:
                    return
            self._budget.take(3600)
            with self._changed:
                log = self._waiting[0] if self._waiting else None
                self._waiting.rotate(-1)
                is_over = log in self._ending
            if log:
                log.read(is_over=is_over)
            if log and is_over:
                self.remove(log)
