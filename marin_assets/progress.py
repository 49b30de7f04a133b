"""What a person sees while jobs run: a live display in a terminal, else lines; and what `job_log` tells Dagster."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import dagster as dg
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from marin_assets.console import console
from marin_assets.job_log import JobLog, duration, progress_text
from marin_core.jobs import JobHandle, JobSpec, JobState, JobStatus

_LINE_EVERY_SECONDS = 15.0


class JobProgress:
    """Follows a set of jobs. Time left is estimated from the training FLOPs done so far."""

    def __init__(self, context: dg.AssetExecutionContext, jobs: Sequence[JobSpec]):
        self._context, self._jobs = context, jobs
        self._log = JobLog(context.log)
        self._trains = any("plan" in job.artifact.config for job in jobs)
        self._done: dict[str, float] = {}
        # What runs had done before they were followed: resumed, or found running.
        self._before: dict[str, float] = {}
        self._finished = 0
        self._started = time.monotonic()
        self._last_line = self._started
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._rows: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._live.start()
        if self._trains:
            self._total = self._live.add_task(self._context.asset_key.to_user_string(), total=1.0, text="")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def update(self, handle: JobHandle, status: JobStatus) -> None:
        """A job's status changed."""
        self._log.update(handle.job, status)
        name = handle.job.artifact.label
        self._finished += status.state in (JobState.SUCCEEDED, JobState.FAILED)
        if status.state is JobState.SUCCEEDED:
            self._done[name] = 1.0
        if self._trains:
            self._show_run(handle.job, status, name)
        elif status.state.is_final:
            self._remove_row(name)
        else:
            self._show_row(name, f"  {name}", status)

    def _show_run(self, job: JobSpec, status: JobStatus, name: str) -> None:
        """The sum of all runs, and a row for this one while it is on its way."""
        now = status.progress
        if now and not status.state.is_final:
            self._done[name] = now["step"] / now["steps"]
            self._before.setdefault(name, self._done[name])
        share = self._share(self._done)
        counts = f"{self._finished}/{len(self._jobs)} runs{self._time_left(share)}"
        self._live.update(self._total, completed=share, text=counts)
        if not status.state.is_final:
            self._show_row(name, f"  {job.artifact.partition}", status, before=f"{counts}  ")
            return
        self._remove_row(name)
        if status.state is JobState.SUCCEEDED and now:
            detail = f"loss {now['loss']:.4f}, {now['steps']} steps, {now['tokens_per_second']:,.0f} tokens/s"
            self._context.log.info(f"[{counts}] {name}: {detail}")

    def _show_row(self, name: str, title: str, status: JobStatus, before: str = "") -> None:
        """A job under way: how far it is, or why it is not."""
        if status.state is JobState.RUNNING and status.progress:
            text, (done, total) = progress_text(status.progress), _share(status.progress)
        elif status.reason:
            text, done, total = f"{status.state.value}: {status.reason}", 0, None
        else:
            return
        if name not in self._rows:
            self._rows[name] = self._live.add_task(title, total=total, text=text)
        self._live.update(self._rows[name], completed=done, total=total, text=text)
        self._line(f"{before}{name}: {text}")

    def _remove_row(self, name: str) -> None:
        if name in self._rows:
            self._live.remove_task(self._rows.pop(name))

    def _line(self, text: str) -> None:
        """Where there is no live display, a line now and then."""
        if self._live.disable and time.monotonic() - self._last_line > _LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            console.print(text, markup=False)

    def _share(self, done: Mapping[str, float]) -> float:
        """Of all training FLOPs, those of these shares of runs."""
        flops = {job.artifact.label: float(job.artifact.config["plan"]["flops"]) for job in self._jobs}
        return sum(flops[name] * share for name, share in done.items()) / sum(flops.values())

    def _time_left(self, share: float) -> str:
        followed = share - self._share(self._before)
        if followed < 0.02:
            return ""
        return f", {duration((time.monotonic() - self._started) * (1 - share) / followed)} left"


def _share(now: Mapping[str, Any]) -> tuple[int, int]:
    return (now["done"], now["items"]) if "phase" in now else (now["step"], now["steps"])
