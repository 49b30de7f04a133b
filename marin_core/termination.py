"""SIGTERM, the notice that this process has to end soon: obeyed at once, or where the work says that it is safe."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_requested = threading.Event()
_deferred = threading.Event()


class Terminated(BaseException):
    """SIGTERM asked this process to end. What is done so far is kept, and the next attempt goes on from there."""


def end_on_sigterm() -> None:
    """From now on SIGTERM raises `Terminated` in the main thread, unless it is deferred."""
    signal.signal(signal.SIGTERM, _on_sigterm)


@contextlib.contextmanager
def termination_deferred() -> Iterator[None]:
    """In here SIGTERM only makes `termination_requested` true. Who ends well all the same has ended well."""
    _deferred.set()
    try:
        yield
    finally:
        _deferred.clear()


def termination_requested() -> bool:
    return _requested.is_set()


def _on_sigterm(signum: int, frame: FrameType | None) -> None:
    # The second of two must not interrupt what the first one's exception is tidying up.
    if not _requested.is_set():
        _requested.set()
        if not _deferred.is_set():
            raise Terminated
