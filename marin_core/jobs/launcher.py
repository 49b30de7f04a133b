"""The interface of launchers, and following jobs to their end."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from marin_core.jobs.spec import JobSpec, JobStatus


class JobHandle(Protocol):
    """A submitted job."""

    @property
    def job(self) -> JobSpec: ...

    def status(self) -> JobStatus: ...

    def cancel(self) -> None: ...


class Launcher(Protocol):
    """Where jobs run."""

    def submit(self, job: JobSpec) -> JobHandle: ...

    def close(self) -> None: ...


def follow(
    handles: Sequence[JobHandle], on_change: Callable[[JobHandle, JobStatus], None], poll_seconds: float = 0.1
) -> None:
    """Wait until every job is in a final state, telling each change of status. Cancels all if interrupted."""
    seen: dict[int, JobStatus] = {}
    try:
        while True:
            for index, handle in enumerate(handles):
                status = handle.status()
                if seen.get(index) != status:
                    seen[index] = status
                    on_change(handle, status)
            if all(status.state.is_final for status in seen.values()):
                return
            time.sleep(poll_seconds)
    except BaseException:
        for handle in handles:
            handle.cancel()
        raise
