"""Jobs as processes on this machine, in warm workers.

Importing Levanter and JAX costs more than a small run, so a worker stays and gets one plan after another. A job's
pool fixes its thread count, because the order of floating-point sums, and so the last bits of a loss, may depend
on it: the same job has the same bits however many run beside it.
"""

import contextlib
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from marin_core.build import BuildOptions
from marin_core.errors import MarinError, in_one_line
from marin_core.jobs.failures import failure_of
from marin_core.jobs.process import WorkerDied, WorkerProcess
from marin_core.jobs.spec import FailureClass, JobSpec, JobState, JobStatus
from marin_core.store import Store

_WORKER_BYTES = 2 * 2**30
# A worker that was killed is gone within moments.
_CANCEL_SECONDS = 10.0


class LocalLauncher:
    """Runs at most as many threads as there are cores, and no more workers than memory holds."""

    def __init__(
        self,
        store: Store,
        state_folder: Path,
        options: BuildOptions,
        cores: int | None = None,
        variables: Mapping[str, str] | None = None,
    ):
        """`variables` are set in the workers' environment, unless they are in this process's already."""
        self._variables = variables
        self._store, self._state, self._options = store, state_folder, options
        self._cores = cores or usable_cores()
        self._executor = ThreadPoolExecutor(max_workers=self._cores, thread_name_prefix="job")
        self._free = threading.Condition()
        self._threads_in_use = 0
        self._idle: list[WorkerProcess] = []
        self._started = 0
        self._closed = False

    def submit(self, job: JobSpec) -> "LocalJob":
        """Queue a job.

        Raises:
            MarinError: the pool is not one that a local machine has.
        """
        threads = _local_threads(job.pools)
        handle = LocalJob(job)
        handle.future = self._executor.submit(self._run, handle, threads)
        return handle

    def close(self) -> None:
        """End the idle workers; running jobs must have been followed or cancelled."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._free:
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for worker in idle:
            worker.close()

    def _run(self, handle: "LocalJob", threads: int) -> None:
        plan = self._store.save_plan(handle.job.artifact)
        for attempt in range(handle.job.max_failures + 1):
            if handle.cancelled:
                handle.set(JobState.CANCELLED, "cancelled")
                return
            worker = self._borrow(threads)
            if worker is None:
                handle.set(JobState.CANCELLED, "the launcher was closed")
                return
            try:
                self._attempt(handle, worker, plan, attempt)
            finally:
                handle.release()
                self._give_back(worker, threads)
            if handle.status().state.is_final:
                return

    def _attempt(self, handle: "LocalJob", worker: WorkerProcess, plan: str, attempt: int) -> None:
        if not handle.hold(worker):
            handle.set(JobState.CANCELLED, "cancelled")
            return
        handle.set(JobState.STARTING, failures=attempt)
        try:
            failed = worker.run(plan, replace(self._options, retries=attempt), handle.hear)
            if failed:
                handle.set(JobState.FAILED, failed.error, failure=failed.failure, log_tail=worker.log_tail())
            else:
                handle.set(JobState.SUCCEEDED)
        except WorkerDied as death:
            # One that was killed as it started left no line, but perhaps the one before it did.
            tail = handle.last_lines = worker.log_tail() or handle.last_lines
            if handle.cancelled:
                handle.set(JobState.CANCELLED, "cancelled")
            elif attempt < handle.job.max_failures:
                handle.set(JobState.RETRYING, f"{death}; starting it again", attempt + 1, death.failure, tail)
            else:
                reason = f"{death}, {attempt + 1} times; its log is {worker.log}"
                handle.set(JobState.FAILED, reason, failure=death.failure, log_tail=tail)

    def _borrow(self, threads: int) -> WorkerProcess | None:
        """A worker of that many threads, idle or new; None once the launcher is closed."""
        with self._free:
            # A job that wants more threads than there are cores runs alone.
            self._free.wait_for(lambda: self._closed or self._threads_in_use + threads <= max(self._cores, threads))
            if self._closed:
                return None
            self._threads_in_use += threads
            fitting = next((w for w in self._idle if w.threads == threads and w.alive), None)
            if fitting:
                self._idle.remove(fitting)
                return fitting
            # Idle workers of another size only hold memory.
            misfits, self._idle = self._idle, []
            self._started += 1
            number = self._started
        for worker in misfits:
            worker.close()
        try:
            return WorkerProcess(self._store.root, self._state, threads, number, self._variables)
        except BaseException:
            with self._free:
                self._threads_in_use -= threads
                self._free.notify_all()
            raise

    def _give_back(self, worker: WorkerProcess, threads: int) -> None:
        with self._free:
            self._threads_in_use -= threads
            keep = worker.alive and not self._closed
            if keep:
                self._idle.append(worker)
            self._free.notify_all()
        if not keep:
            worker.close()


class LocalJob:
    """Handle of a job of `LocalLauncher`."""

    def __init__(self, job: JobSpec):
        self._job = job
        self._lock = threading.Lock()
        self._status = JobStatus(JobState.QUEUED)
        self._worker: WorkerProcess | None = None
        self.cancelled = False
        self.last_lines: tuple[str, ...] = ()
        self.future: Future[None] | None = None

    @property
    def job(self) -> JobSpec:
        return self._job

    def status(self) -> JobStatus:
        failure = (
            self.future.exception() if self.future and self.future.done() and not self.future.cancelled() else None
        )
        if failure is not None and not self._status.state.is_final:
            self.set(JobState.FAILED, in_one_line(failure), failure=failure_of(failure))
        with self._lock:
            return self._status

    def cancel(self) -> None:
        self.cancelled = True
        with self._lock:
            worker = self._worker
        if worker:
            worker.kill()
        elif self.future and self.future.cancel():
            self.set(JobState.CANCELLED, "cancelled")
            return
        if self.future:
            wait([self.future], timeout=_CANCEL_SECONDS)

    def detach(self) -> None:
        """A local worker ends with its launcher: not to be followed is to be cancelled."""
        self.cancel()

    def hold(self, worker: WorkerProcess) -> bool:
        """Whether the worker is to run the job; not if it was cancelled."""
        with self._lock:
            self._worker = None if self.cancelled else worker
            return not self.cancelled

    def release(self) -> None:
        with self._lock:
            self._worker = None

    def set(
        self,
        state: JobState,
        reason: str = "",
        failures: int | None = None,
        failure: FailureClass | None = None,
        log_tail: tuple[str, ...] = (),
    ) -> None:
        with self._lock:
            self._status = replace(
                self._status,
                state=state,
                reason=reason,
                failure=failure,
                failures=self._status.failures if failures is None else failures,
                log_tail=log_tail,
            )

    def hear(self, event: dict) -> None:
        """An event of the worker that runs this job."""
        with self._lock:
            if event["event"] == "log":
                messages = (*self._status.messages, event["message"])
                self._status = replace(self._status, state=JobState.RUNNING, messages=messages)
            elif event["event"] == "progress":
                self._status = replace(self._status, state=JobState.RUNNING, progress=event["progress"])
            elif event["event"] == "link":
                self._status = replace(self._status, links={**self._status.links, event["name"]: event["url"]})


def usable_cores() -> int:
    """Cores of this process, or fewer where memory is short: a worker with Levanter loaded takes over a gigabyte."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # a container's own limit; "max" is none
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(1, min(len(os.sched_getaffinity(0)), memory // _WORKER_BYTES))


def pool_threads(pool: str) -> int:
    """Threads of a local pool, `cpu-N`.

    Raises:
        MarinError: another kind of pool.
    """
    match = re.fullmatch(r"cpu-([1-9]\d*)", pool)
    if not match:
        raise MarinError(f"pool {pool!r} is not on this machine; the local launcher has cpu-1, cpu-2, …")
    return int(match.group(1))


def _local_threads(pools: Sequence[str]) -> int:
    """Threads of the first of several equal pools that is on this machine."""
    for pool in pools[:-1]:
        with contextlib.suppress(MarinError):
            return pool_threads(pool)
    return pool_threads(pools[-1])
