"""Jobs of a Dagster run: submitted, shown, followed to their end; and what becomes of them when it is cancelled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import dagster as dg

from marin_assets.progress import JobProgress
from marin_core import environment
from marin_core.jobs import JobHandle, JobSpec, JobState, JobStatus, Launcher, follow
from marin_core.jobs.launcher import deciding

OnCancel = Literal["cancel", "leave"]


@dataclass(frozen=True)
class JobEnd:
    """How a job ended for this run. `began` is when its first attempt was seen to begin, None if none did."""

    job: JobSpec
    status: JobStatus
    began: datetime | None
    ended: datetime


def run_jobs(
    context: dg.AssetExecutionContext,
    launcher: Launcher,
    jobs: Sequence[JobSpec],
    on_begin: Callable[[JobSpec, datetime], None],
    on_end: Callable[[JobEnd], None],
    on_cancel: OnCancel,
    begins_in: JobState = JobState.STARTING,
) -> dict[str, JobStatus]:
    """Run jobs to their end, and tell of each when it has begun and when it has ended; returns their last status by
    the artifact's label.

    `on_cancel` says what becomes of them when the Dagster run is cancelled or deleted meanwhile. Those that had begun
    and were cancelled are told of as well. `begins_in` is the state from which on a job holds its chips.
    """
    # The longest first, so that none is left running alone at the end.
    ordered = sorted(jobs, key=lambda job: -float(job.artifact.config.get("plan", {}).get("flops", 0)))
    handles: list[JobHandle] = []
    with deciding(handles, lambda: on_interrupt(context, on_cancel)):
        for job in ordered:
            handles.append(launcher.submit(job))
    began: dict[str, datetime] = {}
    told: set[str] = set()
    with JobProgress(context, ordered) as progress:

        def on_change(handle: JobHandle, status: JobStatus) -> None:
            progress.update(handle, status)
            name, now = handle.job.artifact.fingerprint, datetime.now(UTC)
            if status.state in (begins_in, JobState.RUNNING) and name not in began:
                began[name] = now
                on_begin(handle.job, now)
            never_began = status.state is JobState.CANCELLED and name not in began
            if status.state.is_final and name not in told and not never_began:
                told.add(name)
                on_end(JobEnd(handle.job, status, began.get(name), now))

        try:
            follow(
                handles,
                on_change,
                on_interrupt=lambda: on_interrupt(context, on_cancel),
                still_wanted=_run_is_wanted(context) if on_cancel == "cancel" else None,
            )
        except BaseException:
            for handle in handles:
                if handle.status().state is JobState.CANCELLED:
                    on_change(handle, handle.status())
            raise
    return {handle.job.artifact.label: handle.status() for handle in handles}


def on_interrupt(context: dg.AssetExecutionContext, on_cancel: OnCancel) -> OnCancel:
    """What becomes of jobs whose follower is interrupted.

    A person's Ctrl-C cancels them, and so does cancelling the run. A run worker in a pod is also stopped when its node
    is drained: nobody wanted the jobs to end, and the run's next attempt finds them.
    """
    if on_cancel == "leave":
        return "leave"
    return "leave" if environment.runs_in_a_pod() and _run_is_wanted(context)() else "cancel"


def _run_is_wanted(context: dg.AssetExecutionContext) -> Callable[[], bool]:
    """Whether the Dagster run is there and nobody has cancelled it."""

    def is_wanted() -> bool:
        try:
            run = context.instance.get_run_by_id(context.run.run_id)
        except Exception:  # each database has its own; one that is away has decided nothing
            return True
        return run is not None and run.status not in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)

    return is_wanted
