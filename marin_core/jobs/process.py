"""One worker process: starting it, giving it plans, hearing its events, ending it."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.build import BuildOptions
from marin_core.jobs.failures import failure_of_exit, kernel_kills
from marin_core.jobs.spec import FailureClass

_KEEP_LARGE_BLOCKS = ":".join(
    ["glibc.malloc.hugetlb=1", "glibc.malloc.mmap_max=0", "glibc.malloc.trim_threshold=17179869184"]
)


# Of a job's log, so much of its end is kept with what became of it.
_TAIL_LINES = 50
_TAIL_BYTES = 65_536
_LAST_WORDS = "Fatal Python error"
_STACK_LINES = 12


class WorkerDied(Exception):
    """The process ended while it had a job."""

    def __init__(self, message: str, failure: FailureClass):
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True)
class TaskFailed:
    """What a worker says of a task that it could not do: one line, and of which class that is."""

    error: str
    failure: FailureClass


class WorkerProcess:
    """`python -m marin_core.worker --serve` with a fixed number of threads.

    It reads requests from its standard input and ends when that is closed, so it cannot outlive its parent.
    """

    def __init__(
        self, store: str, state_folder: Path, threads: int, number: int, variables: Mapping[str, str] | None = None
    ):
        """`variables` are set in its environment, unless they are in this process's already."""
        self.threads = threads
        self.log = state_folder / "logs" / f"worker-{os.getpid()}-{number}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        unset = {name: value for name, value in (variables or {}).items() if not os.environ.get(name)}
        self._job_began = self._kills_before = 0
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "marin_core.worker", "--store", store, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **unset, **worker_environment(threads, state_folder, os.environ)},
                # A Ctrl-C in the terminal is for the parent; it ends its workers in order.
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, plan: str, options: BuildOptions, hear: Callable[[dict[str, Any]], None]) -> TaskFailed | None:
        """Build the plan's artifact. Returns None on success, else what the task found wrong.

        Raises:
            WorkerDied: the process ended first; the message says how.
        """
        assert self._process.stdin and self._process.stdout
        self._job_began, self._kills_before = self.log.stat().st_size, kernel_kills()
        request = {"plan": plan, "options": {**dataclasses.asdict(options), "scratch": str(options.scratch)}}
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                break  # its end cut the line short
            if event["event"] == "done":
                return None
            if event["event"] == "failed":
                return TaskFailed(event["error"], FailureClass(event["failure"]))
            hear(event)
        raise self._death()

    def log_tail(self) -> tuple[str, ...]:
        """The last lines that the latest job wrote to the log."""
        with open(self.log, "rb") as log:
            log.seek(max(self._job_began, self.log.stat().st_size - _TAIL_BYTES))
            # A bar of progress draws itself again and again in one line.
            lines = [line.rsplit("\r", 1)[-1] for line in log.read().decode(errors="replace").split("\n")]
        return tuple(_without_idle_threads([line.rstrip() for line in lines if line.strip(" ^~\t")]))[-_TAIL_LINES:]

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _death(self) -> WorkerDied:
        code = self._process.wait()
        kernel_killed = kernel_kills() > self._kills_before
        failure = failure_of_exit(code, self.log_tail(), kernel_killed=kernel_killed)
        if code == -signal.SIGKILL:
            by = "the kernel, which was out of memory" if kernel_killed else "something outside"
            return WorkerDied(f"the worker was killed (SIGKILL) by {by}", failure)
        memory = ", out of memory" if failure is FailureClass.OUT_OF_MEMORY else ""
        if code < 0:
            return WorkerDied(f"the worker was ended by signal {signal.Signals(-code).name}{memory}", failure)
        return WorkerDied(f"the worker ended with exit code {code}{memory}", failure)


def _without_idle_threads(lines: Sequence[str]) -> Sequence[str]:
    """Python's last words without the stacks of all threads but the one that failed: they would hide why it did."""
    fatal = next((n for n, line in enumerate(lines) if line.startswith(_LAST_WORDS)), None)
    if fatal is None:
        return lines
    current = next((n for n in range(fatal, len(lines)) if lines[n].startswith("Current thread")), len(lines))
    return [*lines[: fatal + 1], *lines[current : current + _STACK_LINES]]


def worker_environment(threads: int, state_folder: Path, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that must be set before a worker's first import; what is set in `inherited` is kept."""
    inherited = inherited or {}
    # At level 1 a step is compiled in three quarters of the time, and a small one runs no slower.
    flags = f"--xla_backend_optimization_level=1 {inherited.get('XLA_FLAGS', '')}"
    if threads == 1:
        flags += " --xla_cpu_multi_thread_eigen=false"
    return {
        "JAX_PLATFORMS": inherited.get("JAX_PLATFORMS", "cpu"),
        # The width of XLA's thread pool, and of everybody else's.
        "NPROC": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "POLARS_MAX_THREADS": str(threads),
        "RAYON_NUM_THREADS": str(threads),
        "XLA_FLAGS": flags.strip(),
        # XLA allocates its temporaries anew in every step. By default glibc returns such large blocks to the kernel
        # and pays a page fault for every 4 KiB of them in the next step: a third of a nano step's time.
        "GLIBC_TUNABLES": inherited.get("GLIBC_TUNABLES", _KEEP_LARGE_BLOCKS),
        # The compiled step of a shape is the same in every run: start-up falls to a fraction, bits stay.
        "JAX_COMPILATION_CACHE_DIR": inherited.get("JAX_COMPILATION_CACHE_DIR", str(state_folder / "cache" / "jax")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }
