"""Jobs of a Dagster run: submitted, shown, followed to their end; and what becomes of them when it is cancelled."""

from collections.abc import Callable, Sequence
from typing import Literal

import dagster as dg

from marin_assets.progress import JobProgress
from marin_core import environment
from marin_core.jobs import JobSpec, JobStatus, Launcher, follow

OnCancel = Literal["cancel", "leave"]


def run_jobs(
    context: dg.AssetExecutionContext, launcher: Launcher, jobs: Sequence[JobSpec], on_cancel: OnCancel
) -> dict[str, JobStatus]:
    """Run jobs to their end; returns their last status by the artifact's fingerprint.

    `on_cancel` says what becomes of them when the Dagster run is cancelled or deleted meanwhile.
    """
    # The longest first, so that none is left running alone at the end.
    ordered = sorted(jobs, key=lambda job: -float(job.artifact.config.get("plan", {}).get("flops", 0)))
    handles = [launcher.submit(job) for job in ordered]
    with JobProgress(context, ordered) as progress:
        follow(
            handles,
            progress.update,
            on_interrupt=lambda: on_interrupt(context, on_cancel),
            still_wanted=_run_is_wanted(context) if on_cancel == "cancel" else None,
        )
    return {handle.job.artifact.fingerprint: handle.status() for handle in handles}


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
        run = context.instance.get_run_by_id(context.run_id)
        return run is not None and run.status not in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)

    return is_wanted
