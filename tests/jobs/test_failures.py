"""Of which class an end is: errors as they are really raised, processes as they really end."""

import errno
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from marin_core.errors import MarinError
from marin_core.jobs import FailureClass
from marin_core.jobs.failures import failure_of, failure_of_exit, kernel_kills
from marin_core.jobs.process import _without_idle_threads
from marin_core.store import LeaseLost, StoreError
from marin_core.store.store import NotInStore


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (MarinError("the tokenizer has other entries"), FailureClass.REFUSED),
        (NotInStore("mixture/nano is not in the store"), FailureClass.REFUSED),
        (StoreError("the store cannot be read"), FailureClass.INFRASTRUCTURE),
        (LeaseLost("held by another"), FailureClass.INFRASTRUCTURE),
        (OSError(errno.ENOSPC, "No space left on device"), FailureClass.INFRASTRUCTURE),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), FailureClass.OUT_OF_MEMORY),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 3 bytes."), FailureClass.OUT_OF_MEMORY),
        (ValueError("shapes do not fit"), FailureClass.APPLICATION),
    ],
)
def test_an_error_has_a_class(error: Exception, failure: FailureClass) -> None:
    assert failure_of(error) is failure


def test_an_array_that_does_not_fit() -> None:
    with pytest.raises(MemoryError) as raised:
        np.empty(2**60, dtype=np.int8)
    assert failure_of(raised.value) is FailureClass.OUT_OF_MEMORY


def ended(code: str, limit: int | None = None) -> tuple[int, tuple[str, ...]]:
    """The exit code and the lines of a Python process that runs `code`, with so many bytes of memory."""

    def limited() -> None:
        # Whatever an earlier test of this process has made of it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limited)
    return done.returncode, tuple(done.stderr.splitlines())


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", FailureClass.INFRASTRUCTURE),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", FailureClass.PREEMPTED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", FailureClass.APPLICATION),
        ("import os; os.abort()", FailureClass.APPLICATION),
        ("raise SystemExit(3)", FailureClass.APPLICATION),
        ("bytearray(2**34)", FailureClass.OUT_OF_MEMORY),
    ],
)
def test_a_process_s_end_has_a_class(code: str, failure: FailureClass) -> None:
    exit_code, lines = ended(code, limit=2**32)
    assert failure_of_exit(exit_code, lines, kernel_killed=False) is failure


def test_a_kill_is_for_want_of_memory_only_if_the_kernel_says_so() -> None:
    assert failure_of_exit(-signal.SIGKILL, (), kernel_killed=True) is FailureClass.OUT_OF_MEMORY
    assert failure_of_exit(-signal.SIGTERM, (), kernel_killed=True) is FailureClass.PREEMPTED
    assert kernel_kills() >= 0


def test_what_a_process_said_before_its_last_words_is_not_lost_among_its_threads() -> None:
    code = (
        "import faulthandler, os, sys, threading; faulthandler.enable(); "
        "[threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range(20)]; "
        "print('memory allocation of 5 bytes failed', file=sys.stderr, flush=True); os.abort()"
    )
    exit_code, lines = ended(code)
    assert len(lines) > 80
    shown = tuple(_without_idle_threads(lines))
    assert len(shown) < 20
    assert failure_of_exit(exit_code, shown, kernel_killed=False) is FailureClass.OUT_OF_MEMORY
    assert any(line.startswith("Current thread") for line in shown)
