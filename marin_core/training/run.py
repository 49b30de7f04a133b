"""Runs a TrainPlan with Levanter's own `train_lm`, in a worker process, resuming what an earlier attempt left."""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.errors import MarinError
from marin_core.gang import Gang
from marin_core.recipes import TrainPlan
from marin_core.store import Workspace, Writer, canonical_json, digest
from marin_core.termination import Terminated, termination_deferred, termination_requested
from marin_core.training.attempts import attempt
from marin_core.training.checkpoints import Checkpoint, checkpoint_to_resume, keep_only, permanent_steps
from marin_core.training.levanter_config import Checkpointing, TrainData, levanter_config, only_evaluating
from marin_core.training.mesh import hardware
from marin_core.training.metrics import Diverged, MetricsLog, Progress, RunMetrics, StopTraining, tracker_config
from marin_core.training.tracking import RunPage


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out. None of it changes a result."""

    scratch: Path
    checkpoint_every_seconds: float | None
    checkpoint_every_steps: int | None = None
    # What all chips can do together, in FLOP/s.
    peak_flops: float | None = None


def train(
    plan: TrainPlan,
    data: TrainData,
    writer: Writer,
    options: RunOptions,
    log: Callable[[str], None],
    report: Callable[[Progress], None],
    gang: Gang | None = None,
    page: RunPage | None = None,
) -> tuple[dict[str, Any], str]:
    """Train to the last step; returns (summary, content digest) of the run for its record. The other processes of the
    `gang` call `train_along`. The `page` is shown what happens; the summary says where it is, in `wandb_url` or
    `wandb_offline`. Neither that nor `hardware` and `attempts` are in the content digest.

    Writes `plan.json`, `metrics.parquet` (step, loss, learning_rate, adam_lr, seconds), `evals.parquet` (step, name,
    value: every evaluation on the way), `evals.json` (the last one), `attempts.jsonl` and, unless the run diverged,
    `checkpoints/step-N` of the steps that the plan keeps. Divergence is an outcome: the summary's `status` is then
    `diverged`.

    Raises:
        MarinError: no checkpoint is readable although there are some, the run ended before its last step, or the
            devices cannot share it.
        LeaseLost: another worker took the run over.
        Terminated: SIGTERM; there is a checkpoint of the last completed step.
    """
    resume = checkpoint_to_resume(writer.fs, writer.path("checkpoints"), log)
    history = MetricsLog(writer)
    rows = history.load(up_to_step=resume.step if resume else -1)
    if resume:
        log(f"resuming {writer.spec.label} after step {resume.step + 1} of {plan.steps}")

    def checked_report(progress: Progress) -> None:
        writer.check()
        report(progress)

    show = page.show if page else lambda step, values: None
    metrics = RunMetrics(plan, history, rows, checked_report, options.peak_flops, show)
    start = _Start(resume, evaluates_first=metrics.owed_evaluation is not None)
    if start.evaluates_first:
        log(f"step {metrics.last_step + 1} was not evaluated before the run ended; evaluating it now")
    if gang:
        gang.tell("start", {"lease_token": writer.lease_token, **dataclasses.asdict(start)})
    here = hardware()
    is_loss = (lambda error: gang.lost_peer(error) is not None) if gang else lambda error: False
    kept = page.kept_in(writer, rows) if page else contextlib.nullcontext()
    with kept, attempt(writer, after_step=metrics.last_step, hardware=here, is_loss=is_loss) as earlier:
        diverged = _run(plan, data, writer, options, start, metrics, gang, history.flush)
        if diverged:
            log(f"{writer.spec.label} {diverged}")
        elif metrics.last_step != plan.steps - 1:
            raise MarinError(
                f"{writer.spec.label} ended after {metrics.last_step + 1} of {plan.steps} steps; materialize it again"
            )
        summary, content = _finish(plan, writer, metrics, history, "diverged" if diverged else "succeeded")
        if page:
            page.summarize(summary)
    summary |= {"hardware": here, "attempts": earlier} | (page.links if page else {})
    return summary, content


def train_along(plan: TrainPlan, data: TrainData, workspace: Workspace, options: RunOptions, gang: Gang) -> None:
    """Train as a process of a gang that does not lead it: the same steps, and the checkpoints' shards of this process.

    Raises:
        Terminated: SIGTERM reached a process of the gang; there is a checkpoint of the last completed step.
    """
    told = gang.hear("start")
    start = _Start(Checkpoint(**told["resume"]) if told["resume"] else None, told["evaluates_first"])
    _run(plan, data, workspace, options, start, RunMetrics(plan), gang)


@dataclass(frozen=True)
class _Start:
    """Where a run begins, for all its processes: at step 0 or after the checkpoint, `evaluates_first` if an evaluation
    of that is owed."""

    resume: Checkpoint | None
    evaluates_first: bool


def _run(
    plan: TrainPlan,
    data: TrainData,
    workspace: Workspace,
    options: RunOptions,
    start: _Start,
    metrics: RunMetrics,
    gang: Gang | None,
    before_save: Callable[[], None] = lambda: None,
) -> Diverged | None:
    """Levanter's run, to its end or until it diverges."""
    from levanter.main import train_lm

    stops_at = gang.stops_at if gang else lambda step: termination_requested()

    def end_if_asked(step: int) -> None:
        if stops_at(step):
            raise Terminated

    config = levanter_config(
        plan,
        data,
        Checkpointing(
            folder=workspace.path("checkpoints"),
            every_seconds=options.checkpoint_every_seconds,
            every_steps=options.checkpoint_every_steps,
            resume_from=start.resume.url if start.resume else None,
            stops_at=stops_at,
            before_save=before_save,
        ),
        tracker_config(metrics),
        run_id=workspace.url.rsplit("/", 1)[-1],
        log_dir=options.scratch,
    )
    try:
        with termination_deferred():
            if start.resume:
                # In a gang this also says where it stands: JAX stops all at the number after the highest that any has
                # asked with, which is 1 where none has asked, and past that nobody would stop any more.
                end_if_asked(start.resume.step)
                if start.evaluates_first:
                    train_lm.main(only_evaluating(config, start.resume.step))
                    before_save()
                    end_if_asked(start.resume.step + 1)
            train_lm.main(config)
        if not math.isfinite(_eval_loss(metrics.evals)):
            raise StopTraining(Diverged(metrics.last_step, _eval_loss(metrics.evals)))
    except StopTraining as stop:
        if not isinstance(stop.cause, Diverged):
            raise stop.cause from None
        return stop.cause
    return None


def _finish(
    plan: TrainPlan, writer: Writer, metrics: RunMetrics, history: MetricsLog, status: str
) -> tuple[dict[str, Any], str]:
    writer.write_json("plan.json", plan.to_json())
    writer.write_json("evals.json", metrics.evals)
    for name, table in (("evals.parquet", metrics.evals_table()), ("metrics.parquet", metrics.table())):
        with writer.open(name) as file:
            table.write_parquet(file)
    # After the tables, which a later attempt can read as well.
    history.remove()
    _keep_checkpoints(plan, writer, status)
    losses = [row["loss"] for row in metrics.rows]
    last = losses[-10:]
    seconds = sum(row["seconds"] for row in metrics.rows)
    tokens = len(losses) * plan.batch_size * plan.seq_len
    finished = status == "succeeded"
    summary = {
        "status": status,
        "steps": len(losses),
        "tokens": tokens,
        "flops": plan.flops,
        "hidden_dim": plan.hidden_dim,
        "train_loss": sum(last) / len(last) if finished else None,
        "eval_loss": _eval_loss(metrics.evals) if finished else None,
        "evals": {k: v for k, v in metrics.evals.items() if "loading_time" not in k} if finished else {},
        "train_seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / max(seconds, 1e-9), 1),
    }
    content = digest(canonical_json([[loss.hex() for loss in losses], summary["evals"], status]))
    return summary, content


def _eval_loss(evals: dict[str, float]) -> float:
    """Mean over the validation sets of nats per token; Levanter reports no macro average of a single set."""
    return evals.get("eval/macro_loss", evals.get("eval/loss", math.nan))


def _keep_checkpoints(plan: TrainPlan, writer: Writer, status: str) -> None:
    """Drop what only a resume would have needed, and Levanter's own list of evaluations. Of a run that diverged no
    checkpoint is kept.

    Raises:
        MarinError: there is no checkpoint of the last step.
    """
    folder = writer.path("checkpoints")
    kept = [] if status == "diverged" else permanent_steps(plan)
    if kept and not writer.fs.exists(f"{folder}/step-{kept[-1]}/metadata.json"):
        raise MarinError(f"{writer.spec.label} has no checkpoint of its last step; materialize it again")
    keep_only(writer.fs, folder, kept)
