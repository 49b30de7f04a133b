"""The interface of launchers, and following jobs to their end."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

from marin_core.jobs.spec import JobSpec, JobStatus

_STILL_WANTED_SECONDS = 15.0
_CANCELLED_AT_ONCE = 16


class JobHandle(Protocol):
    """A submitted job."""

    @property
    def job(self) -> JobSpec: ...

    def status(self) -> JobStatus: ...

    def cancel(self) -> None:
        """End it, wherever it runs, and return when it has ended."""
        ...

    def detach(self) -> None:
        """Follow it no more, and leave it running where it can outlive its follower."""
        ...


class Launcher(Protocol):
    """Where jobs run."""

    def submit(self, job: JobSpec) -> JobHandle: ...

    def close(self) -> None: ...


def follow(
    handles: Sequence[JobHandle],
    on_change: Callable[[JobHandle, JobStatus], None],
    poll_seconds: float = 0.1,
    *,
    on_interrupt: Callable[[], Literal["cancel", "leave"]] = lambda: "cancel",
    still_wanted: Callable[[], bool] | None = None,
) -> None:
    """Wait until every job is in a final state, telling each change of status.

    `on_interrupt` as in `deciding`. `still_wanted` is asked now and then; once it says no, all are cancelled and told
    of a last time.
    """
    # A look at a thousand jobs takes longer than at one, and nobody reads a thousand changes in a tenth of a second.
    pause = poll_seconds + len(handles) / 1000
    seen: dict[int, JobStatus] = {}
    asked = time.monotonic()
    with deciding(handles, on_interrupt):
        while not _look(handles, seen, on_change):
            time.sleep(pause)
            if still_wanted and time.monotonic() - asked > _STILL_WANTED_SECONDS:
                asked = time.monotonic()
                if not still_wanted():
                    cancel_all(handles)
                    _look(handles, seen, on_change)
                    return


@contextlib.contextmanager
def deciding(handles: Sequence[JobHandle], on_interrupt: Callable[[], Literal["cancel", "leave"]]) -> Iterator[None]:
    """Decide what becomes of jobs, of those submitted by then, when what is done here does not come to its end.

    An interrupt asks `on_interrupt`. An error is nobody's wish: jobs that can outlive it are left for whoever follows
    them next.
    """
    try:
        yield
    except Exception:
        _detach_all(handles)
        raise
    except BaseException:
        if on_interrupt() == "leave":
            _detach_all(handles)
        else:
            cancel_all(handles)
        raise


def cancel_all(handles: Sequence[JobHandle]) -> None:
    """Cancel jobs, many at once, and wait for it."""
    if len(handles) == 1:
        handles[0].cancel()
    elif handles:
        with ThreadPoolExecutor(min(_CANCELLED_AT_ONCE, len(handles)), thread_name_prefix="cancel") as executor:
            list(executor.map(lambda handle: handle.cancel(), handles))


def _detach_all(handles: Sequence[JobHandle]) -> None:
    """Follow jobs no more."""
    for handle in handles:
        handle.detach()


def _look(
    handles: Sequence[JobHandle], seen: dict[int, JobStatus], on_change: Callable[[JobHandle, JobStatus], None]
) -> bool:
    """Tell what changed; whether all have ended."""
    for index, handle in enumerate(handles):
        status = handle.status()
        before = seen.get(index)
        if before is not status and before != status:
            on_change(handle, status)
        seen[index] = status
    return all(status.state.is_final for status in seen.values())
