"""What a person sees while jobs run: a live display in a terminal, lines elsewhere, a few events in Dagster.

Dagster keeps every event for ever, so only what a reader wants later goes there: what finished, what failed, what
was retried. Steps go to the terminal.
"""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import dagster as dg
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from marin_assets.console import console
from marin_core.jobs import JobHandle, JobSpec, JobState, JobStatus

_LINE_EVERY_SECONDS = 15.0


class JobProgress:
    """Follows a set of jobs. Time left is estimated from the training FLOPs done so far."""

    def __init__(self, context: dg.AssetExecutionContext, jobs: Sequence[JobSpec]):
        self._context, self._jobs = context, jobs
        self._trains = any("plan" in job.artifact.config for job in jobs)
        self._done: dict[str, float] = {}
        self._finished = 0
        self._messages: dict[str, int] = {}
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
        name = handle.job.artifact.label
        for message in status.messages[self._messages.get(name, 0) :]:
            self._context.log.info(message)
        self._messages[name] = len(status.messages)
        match status.state:
            case JobState.RETRYING:
                self._context.log.warning(f"{name}: {status.reason}")
            case JobState.FAILED:
                self._finished += 1
                self._context.log.error(f"{name} failed: {status.reason}")
            case JobState.SUCCEEDED:
                self._finished += 1
                self._done[name] = 1.0
        if self._trains:
            self._show(handle, status, name)
        elif status.progress:
            self._show_stage(status.progress, name, ended=status.state.is_final)

    def _show_stage(self, now: Mapping[str, Any], name: str, *, ended: bool) -> None:
        """Items done of a data stage's current phase."""
        text = f"{now['phase']} {now['done']}/{now['items']}"
        if name not in self._rows:
            self._rows[name] = self._live.add_task(f"  {name}", total=now["items"], text=text)
        self._live.update(self._rows[name], completed=now["done"], total=now["items"], text=text)
        if ended:
            self._live.remove_task(self._rows.pop(name))
        else:
            self._line(f"{name}: {text}")

    def _show(self, handle: JobHandle, status: JobStatus, name: str) -> None:
        now = status.progress
        if now and not status.state.is_final:
            self._done[name] = now["step"] / now["steps"]
        share = self._share_done()
        counts = f"{self._finished}/{len(self._jobs)} runs{self._time_left(share)}"
        self._live.update(self._total, completed=share, text=counts)
        if status.state.is_final:
            if name in self._rows:
                self._live.remove_task(self._rows.pop(name))
            if status.state is JobState.SUCCEEDED and now:
                detail = f"loss {now['loss']:.4f}, {now['steps']} steps, {now['tokens_per_second']:,.0f} tokens/s"
                self._context.log.info(f"[{counts}] {name}: {detail}")
            return
        if not now:
            return
        text = f"step {now['step']}/{now['steps']}  loss {now['loss']:.3f}  {now['tokens_per_second']:,.0f} tokens/s"
        if name not in self._rows:
            self._rows[name] = self._live.add_task(f"  {handle.job.artifact.partition}", total=now["steps"], text=text)
        self._live.update(self._rows[name], completed=now["step"], text=text)
        self._line(f"{counts}  {name}: {text}")

    def _line(self, text: str) -> None:
        """Where there is no live display, a line now and then."""
        if self._live.disable and time.monotonic() - self._last_line > _LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            console.print(text, markup=False)

    def _share_done(self) -> float:
        flops = {job.artifact.label: float(job.artifact.config["plan"]["flops"]) for job in self._jobs}
        return sum(flops[name] * share for name, share in self._done.items()) / sum(flops.values())

    def _time_left(self, share: float) -> str:
        if share < 0.02:
            return ""
        seconds = round((time.monotonic() - self._started) * (1 - share) / share)
        return f", {seconds // 60} min {seconds % 60:02d} s left"
