"""Jobs of a Dagster run: submitted, shown, followed to their end; and what becomes of them when it is cancelled."""

from collections.abc import Callable, Sequence
from typing import Literal

import dagster as dg

from marin_assets.progress import JobProgress
from marin_core import environment
from marin_core.jobs import JobHandle, JobSpec, JobStatus, Launcher, follow
from marin_core.jobs.launcher import deciding

OnCancel = Literal["cancel", "leave"]


def run_jobs(
    context: dg.AssetExecutionContext,
    launcher: Launcher,
    jobs: Sequence[JobSpec],
    on_end: Callable[[JobSpec, JobStatus], None],
    on_cancel: OnCancel,
) -> dict[str, JobStatus]:
    """Run jobs to their end, and tell each one's last status when it has ended; returns them by the artifact's label.

    `on_cancel` says what becomes of them when the Dagster run is cancelled or deleted meanwhile.
    """
    # The longest first, so that none is left running alone at the end.
    ordered = sorted(jobs, key=lambda job: -float(job.artifact.config.get("plan", {}).get("flops", 0)))
    handles: list[JobHandle] = []
    with deciding(handles, lambda: on_interrupt(context, on_cancel)):
        for job in ordered:
            handles.append(launcher.submit(job))
    with JobProgress(context, ordered) as progress:

        def on_change(handle: JobHandle, status: JobStatus) -> None:
            progress.update(handle, status)
            if status.state.is_final:
                on_end(handle.job, status)

        follow(
            handles,
            on_change,
            on_interrupt=lambda: on_interrupt(context, on_cancel),
            still_wanted=_run_is_wanted(context) if on_cancel == "cancel" else None,
        )
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
