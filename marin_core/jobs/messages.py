"""What a worker on a cluster tells: Dagster Pipes messages as objects in the store, and both ends of them.

A pod's messages are chunks `.jobs/{job}/{pod}/{index:06d}.jsonl`, index from 1, a message a line, written once each.
Whoever follows reads them in order from wherever it is, so either end may die and begin again. The protocol is that of
`dagster_pipes`; its own blob-store channel is not used, since its upload thread ends for good at the first upload that
fails, and keeps every report of progress when nobody wants but the last.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from dagster_pipes import PIPES_PROTOCOL_VERSION, PIPES_PROTOCOL_VERSION_FIELD
from tenacity import Retrying, wait_random_exponential

from marin_core.store.objects import ObjectStore

# Time between two chunks of a pod: at first, and at most. In between it grows with the age of the pod's messages, so
# that 72 hours of progress are fewer than 2,000 objects to write, read and delete.
CHUNK_SECONDS = 2.0
LONGEST_CHUNK_SECONDS = 180.0
CHUNK_SHARE_OF_AGE = 0.01
# Chunks that a reader which is behind asks for at the same time.
_READ_AHEAD = 16
# Longest log message, in characters.
MAX_MESSAGE = 2_000
# What one pod may log in all, in characters; the rest is in its own log only.
MAX_LOGGED = 500_000
_LONGEST_RETRY_SECONDS = 20.0
# In a job's folder beside those of its pods: the ends of the logs of pods that failed.
LOGS_FOLDER = "logs"
# Beside it: an object for each pod that has led the job's work.
ATTEMPTS_FOLDER = "attempts"


def messages_folder(job: str) -> str:
    """Prefix, in the store, of the messages of every pod of a job."""
    return f".jobs/{job}"


def chunk_path(job: str, pod: str, index: int) -> str:
    return f"{messages_folder(job)}/{pod}/{index:06d}.jsonl"


def chunk_pause(age: float) -> float:
    """Seconds from one chunk to the next, `age` seconds after the pod's first."""
    return min(max(CHUNK_SECONDS, CHUNK_SHARE_OF_AGE * age), LONGEST_CHUNK_SECONDS)


def note_attempt(objects: ObjectStore, job: str, pod: str) -> int:
    """Write down that a pod leads an attempt at a job; returns how many other pods did so before. What it lists is as
    long as that, however much each of them told."""
    folder = f"{messages_folder(job)}/{ATTEMPTS_FOLDER}/"
    objects.create(folder + pod, b"")
    return sum(path != folder + pod for path, _ in objects.list(folder))


class MessageWriter:
    """Sends a pod's messages from a thread of its own, in order, a chunk at most every `chunk_pause` seconds, the
    first at once. While the store cannot be reached they wait in memory: logs up to a limit, and only the latest
    progress."""

    def __init__(self, objects: ObjectStore, job: str, pod: str, extras: Mapping[str, Any] | None = None):
        """`extras` are told with the message `opened`: the rank, for instance."""
        self._objects, self._job, self._pod = objects, job, pod
        self._changed = threading.Condition()
        self._waiting = [_message("opened", {"extras": dict(extras or {})})]
        self._progress: Mapping[str, Any] | None = None
        self._closing = False
        self._logged = 0
        self._index = 1
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._send_chunks, name=f"messages {pod}", daemon=True)
        self._thread.start()

    def log(self, text: str) -> None:
        """One log message, cut at `MAX_MESSAGE` characters; none once `MAX_LOGGED` are sent."""
        if self._logged >= MAX_LOGGED:
            return
        text = text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 2]} …"
        self._logged += len(text)
        if self._logged >= MAX_LOGGED:
            text = f"{MAX_LOGGED} characters are logged; the rest is in the log of pod {self._pod}"
        self._put(_message("log", {"message": text, "level": "INFO"}))

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Where the task is; of several before the next chunk, the last is sent."""
        with self._changed:
            self._progress = dict(progress)
            self._changed.notify()

    def link(self, name: str, url: str) -> None:
        """A URL worth following, by a name that tells what is there."""
        self._put(_message("report_custom_message", {"payload": {"links": {name: url}}}))

    def failed(self, error: str) -> None:
        """The error, in one line, that ends this worker."""
        self._put(_message("report_custom_message", {"payload": {"failed": error[:MAX_MESSAGE]}}))

    def close(self, timeout: float = 20.0) -> bool:
        """Send the rest and the message `closed`, within `timeout` seconds; False if the store took it no more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _put(self, message: dict[str, Any]) -> None:
        with self._changed:
            self._waiting.append(message)
            self._changed.notify()

    def _send_chunks(self) -> None:
        closed = False
        while not closed:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._progress is not None or self._closing)
                closed = self._closing
            self._send(closed)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, chunk_pause(time.monotonic() - self._began))

    def _send(self, closed: bool) -> None:
        """Send what waits as one chunk, however long the store is away; what comes meanwhile is the next chunk's."""
        data = self._take(closed)
        for attempt in Retrying(wait=wait_random_exponential(max=_LONGEST_RETRY_SECONDS), sleep=self._before_retry):
            with attempt:
                while not self._objects.create(self._path, data) and not self._is_written(data):
                    self._index += 1  # taken by an earlier process of the same pod
        self._index += 1

    @property
    def _path(self) -> str:
        return chunk_path(self._job, self._pod, self._index)

    def _is_written(self, data: bytes) -> bool:
        """Whether the chunk was written by a try of which only the answer was lost."""
        written = self._objects.read(self._path)
        return written is not None and written.data == data

    def _before_retry(self, seconds: float) -> None:
        with self._changed:
            closing = self._changed.wait_for(lambda: self._closing, seconds)
        if closing:
            time.sleep(min(seconds, 0.5))

    def _take(self, closed: bool) -> bytes:
        with self._changed:
            messages, self._waiting = self._waiting, []
            progress, self._progress = self._progress, None
        if progress is not None:
            messages.append(_message("report_custom_message", {"payload": {"progress": progress}}))
        if closed:
            messages.append(_message("closed", {}))
        return "\n".join(json.dumps(message) for message in messages).encode()


@dataclass(frozen=True)
class WorkerEvents:
    """What a pod told since it was last asked. `progress` is the latest report; `failed` the error, in one line, that
    ended the worker; `opened` holds what the worker told of itself when it began; `closed`: it said that it is done.
    `links` has new URLs by name.

    `unreachable` says why the store could not be read; nothing is lost by that.
    """

    logs: tuple[str, ...] = ()
    progress: Mapping[str, Any] | None = None
    failed: str | None = None
    opened: Mapping[str, Any] | None = None
    closed: bool = False
    unreachable: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)


class MessageReader:
    """Reads a pod's messages in order, each once. A new reader begins at the first, and catches up by reading several
    chunks at a time."""

    def __init__(self, objects: ObjectStore, job: str, pod: str):
        self._objects, self._job, self._pod = objects, job, pod
        self._next = 1

    def read(self) -> WorkerEvents:
        """What is new since the last call; never raises."""
        messages: list[Mapping[str, Any]] = []
        unreachable = None
        try:
            for chunk in self._new_chunks():
                messages += _parsed(chunk)
        except Exception as error:  # every back end has its own
            unreachable = (str(error).splitlines() or [type(error).__name__])[0]
        return _events(messages, unreachable)

    def _new_chunks(self) -> Iterator[bytes]:
        """Those up to the first that is not there. One alone is the usual case; who finds two in a row is behind."""
        for _ in range(2):
            chunk = self._objects.read(self._path(self._next))
            if chunk is None:
                return
            self._next += 1
            yield chunk.data
        with ThreadPoolExecutor(_READ_AHEAD) as pool:
            while True:
                paths = [self._path(self._next + ahead) for ahead in range(_READ_AHEAD)]
                for chunk in pool.map(self._objects.read, paths):
                    if chunk is None:
                        return
                    self._next += 1
                    yield chunk.data

    def _path(self, index: int) -> str:
        return chunk_path(self._job, self._pod, index)


def _events(messages: list[Mapping[str, Any]], unreachable: str | None) -> WorkerEvents:
    logs = tuple(m["params"]["message"] for m in messages if m["method"] == "log")
    payloads = [m["params"]["payload"] for m in messages if m["method"] == "report_custom_message"]
    told = {name: value for payload in payloads for name, value in payload.items()}
    links = {name: url for payload in payloads for name, url in payload.get("links", {}).items()}
    opened = next((m["params"]["extras"] for m in messages if m["method"] == "opened"), None)
    closed = any(m["method"] == "closed" for m in messages)
    return WorkerEvents(logs, told.get("progress"), told.get("failed"), opened, closed, unreachable, links)


def _parsed(chunk: bytes) -> list[Mapping[str, Any]]:
    messages = []
    for line in chunk.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            messages.append(json.loads(line))
    return messages


def _message(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {PIPES_PROTOCOL_VERSION_FIELD: PIPES_PROTOCOL_VERSION, "method": method, "params": params}
