"""Of which class an end is, as far as the process that met it, or the one that waited for it, can tell."""

import contextlib
import re
import signal
from pathlib import Path

from marin_core.errors import MarinError, disk_full_message
from marin_core.gang import PeerLost
from marin_core.jobs.spec import FailureClass
from marin_core.store import LeaseLost, StoreError
from marin_core.store.store import NotInStore

# Errors of the place and not of the task, which another try may find gone.
OF_THE_PLACE = (LeaseLost, PeerLost, StoreError)

# What XLA, the C++ runtime, glibc, Rust and NumPy say when an allocation fails.
_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|MemoryError|out of memory|bad_alloc|cannot allocate memory|memory allocation of|"
    r"unable to allocate",
    re.I,
)
_LAST_LINES = 20
# Where the kernel counts the processes that it killed for want of memory: of this container, else of the machine.
_KILL_COUNTS = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
    Path("/proc/vmstat"),
)


def failure_of(error: BaseException) -> FailureClass:
    """The class of an error that ended a task."""
    # What is not there was to be made first.
    if isinstance(error, OF_THE_PLACE) and not isinstance(error, NotInStore):
        return FailureClass.INFRASTRUCTURE
    if isinstance(error, MarinError):
        return FailureClass.REFUSED
    if isinstance(error, MemoryError) or tells_of_memory(str(error)):
        return FailureClass.OUT_OF_MEMORY
    if isinstance(error, OSError) and disk_full_message(error, ""):
        return FailureClass.INFRASTRUCTURE
    return FailureClass.APPLICATION


def failure_of_exit(code: int, log_tail: tuple[str, ...], *, kernel_killed: bool) -> FailureClass:
    """The class of a process's end. `code` is its exit code, or minus the signal that ended it; `kernel_killed` says
    that meanwhile the kernel killed a process for want of memory."""
    if code == -signal.SIGKILL:
        return FailureClass.OUT_OF_MEMORY if kernel_killed else FailureClass.INFRASTRUCTURE
    if code == -signal.SIGTERM:
        return FailureClass.PREEMPTED
    # An allocation that fails in native code ends the process, and the log is all that it leaves.
    if tells_of_memory("\n".join(log_tail[-_LAST_LINES:])):
        return FailureClass.OUT_OF_MEMORY
    return FailureClass.APPLICATION


def tells_of_memory(text: str) -> bool:
    """Whether an error or the end of a log says that an allocation failed."""
    return _MEMORY.search(text) is not None


def kernel_kills() -> int:
    """How many processes the kernel has killed here for want of memory; 0 where it does not say."""
    for path in _KILL_COUNTS:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0
