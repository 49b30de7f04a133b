"""Whom a worker tells what happens: the process that started it, or, on a cluster, the store and the pod's log."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import IO, Any, Protocol

from marin_core.jobs.messages import MessageWriter, note_attempt
from marin_core.jobs.spec import FailureClass
from marin_core.store import ObjectStore

# How often a pod's log says where the task is.
_PROGRESS_LINE_SECONDS = 30.0


class Events(Protocol):
    """What a worker tells. `report` takes a frozen dataclass of progress; `failed` one line."""

    def log(self, message: str) -> None: ...

    def report(self, progress: Any) -> None: ...

    def link(self, name: str, url: str) -> None:
        """A URL worth following, for `JobStatus.links`."""
        ...

    def failed(self, error: str, failure: FailureClass = FailureClass.REFUSED) -> None: ...

    def done(self) -> None: ...

    def earlier_attempts(self) -> int:
        """How many processes led the same job before this one, as far as anybody can tell; asked once, as the work
        begins. 0 for those that follow."""
        ...

    def close(self) -> None:
        """Tell what is still to be told, within half a minute."""
        ...


class StreamEvents:
    """A JSON line per event, for the process at the other end of a pipe."""

    def __init__(self, stream: IO[str]):
        self._stream = stream

    @classmethod
    def on_stdout(cls) -> "StreamEvents":
        """Takes standard output for events; what anybody prints from now on goes to standard error."""
        events = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        return cls(events)

    def log(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)
        self._tell({"event": "log", "message": message})

    def report(self, progress: Any) -> None:
        self._tell({"event": "progress", "progress": dataclasses.asdict(progress)})

    def link(self, name: str, url: str) -> None:
        self._tell({"event": "link", "name": name, "url": url})

    def failed(self, error: str, failure: FailureClass = FailureClass.REFUSED) -> None:
        self._tell({"event": "failed", "error": error, "failure": failure.value})

    def done(self) -> None:
        self._tell({"event": "done"})

    def earlier_attempts(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def _tell(self, event: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()


class PodEvents:
    """Messages in the store from the leading process, and from any other only if it fails; plain lines in the pod's
    log from each."""

    def __init__(self, objects: ObjectStore, job: str, pod: str, index: int):
        self._objects, self._job, self._pod, self._index = objects, job, pod, index
        self._messages = self._open() if index == 0 else None
        self._said = -_PROGRESS_LINE_SECONDS

    def log(self, message: str) -> None:
        print(message, flush=True)
        if self._messages:
            self._messages.log(message)

    def report(self, progress: Any) -> None:
        values = dataclasses.asdict(progress)
        if time.monotonic() - self._said >= _PROGRESS_LINE_SECONDS:
            self._said = time.monotonic()
            known = {name: value for name, value in values.items() if value is not None}
            print(", ".join(f"{name} {_short(value)}" for name, value in known.items()), flush=True)
        if self._messages:
            self._messages.progress(values)

    def link(self, name: str, url: str) -> None:
        if self._messages:
            self._messages.link(name, url)

    def failed(self, error: str, failure: FailureClass = FailureClass.REFUSED) -> None:
        # Of which class it is, the pod's exit code and the cluster tell.
        print(f"failed: {error}", flush=True)
        if self._messages is None:
            self._messages = self._open()
        self._messages.failed(error)

    def done(self) -> None:
        print("done", flush=True)

    def earlier_attempts(self) -> int:
        return note_attempt(self._objects, self._job, self._pod) if self._index == 0 else 0

    def close(self) -> None:
        if self._messages and not self._messages.close():
            print("the store did not take the last messages", flush=True)

    def _open(self) -> MessageWriter:
        return MessageWriter(self._objects, self._job, self._pod, {"rank": self._index})


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
