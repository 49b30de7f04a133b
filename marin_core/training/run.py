"""Runs a TrainPlan with Levanter's own `train_lm`, in a worker process, resuming what an earlier attempt left."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.store import Writer, canonical_json, digest
from marin_core.training.checkpoints import checkpoint_to_resume
from marin_core.training.levanter_config import Checkpointing, TrainData, levanter_config
from marin_core.training.metrics import Diverged, MetricsLog, Progress, RunMetrics, StopTraining, tracker_config


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out. None of it changes a result."""

    scratch: Path
    checkpoint_every_seconds: float | None
    checkpoint_every_steps: int | None = None


def train(
    plan: TrainPlan,
    data: TrainData,
    writer: Writer,
    options: RunOptions,
    log: Callable[[str], None],
    report: Callable[[Progress], None],
) -> tuple[dict[str, Any], str]:
    """Train to the last step; returns (summary, content digest) of the run for its record.

    Writes `plan.json`, `metrics.parquet` (step, loss, learning_rate, adam_lr, seconds), `evals.json` and, unless the
    run diverged, `checkpoints/step-N`. Divergence is an outcome: the summary's `status` is then `diverged`.

    Raises:
        MarinError: no checkpoint is readable although there are some, or the run ended before its last step.
        LeaseLost: another worker took the run over.
    """
    from levanter.main import train_lm

    checkpoints = writer.path("checkpoints")
    resume = checkpoint_to_resume(writer.fs, checkpoints, log)
    history = MetricsLog(writer)
    rows = history.load(up_to_step=resume.step if resume else -1)
    if resume:
        log(f"resuming {writer.spec.label} after step {resume.step + 1} of {plan.steps}")

    def checked_report(progress: Progress) -> None:
        writer.check()
        report(progress)

    metrics = RunMetrics(history, rows, plan.steps, plan.batch_size * plan.seq_len, checked_report)
    config = levanter_config(
        plan,
        data,
        Checkpointing(
            folder=checkpoints,
            every_seconds=options.checkpoint_every_seconds,
            every_steps=options.checkpoint_every_steps,
            resume_from=resume.url if resume else None,
        ),
        tracker_config(metrics),
        run_id=writer.spec.fingerprint,
        log_dir=options.scratch,
    )
    status = "succeeded"
    try:
        train_lm.main(config)
        if not math.isfinite(_eval_loss(metrics.evals)):
            raise StopTraining(Diverged(metrics.last_step, _eval_loss(metrics.evals)))
    except StopTraining as stop:
        if not isinstance(stop.cause, Diverged):
            raise stop.cause from None
        log(f"{writer.spec.label} {stop.cause}")
        status = "diverged"
    if status == "succeeded" and metrics.last_step != plan.steps - 1:
        raise MarinError(
            f"{writer.spec.label} ended after {metrics.last_step + 1} of {plan.steps} steps; materialize it again"
        )
    return _finish(plan, writer, metrics, history, status)


def _finish(
    plan: TrainPlan, writer: Writer, metrics: RunMetrics, history: MetricsLog, status: str
) -> tuple[dict[str, Any], str]:
    writer.write_json("plan.json", plan.to_json())
    writer.write_json("evals.json", metrics.evals)
    with writer.open("metrics.parquet") as file:
        metrics.table().write_parquet(file)
    # After the table, which a later attempt can read as well.
    history.remove()
    _keep_last_checkpoint(writer, None if status == "diverged" else plan.steps - 1)
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


def _keep_last_checkpoint(writer: Writer, step: int | None) -> None:
    """Drop what only a resume would have needed. None keeps nothing.

    Raises:
        MarinError: there is no checkpoint of the last step.
    """
    if step is not None and not writer.fs.exists(writer.path("checkpoints", f"step-{step}", "metadata.json")):
        raise MarinError(f"{writer.spec.label} has no checkpoint of its last step; materialize it again")
    folder = writer.path("checkpoints")
    for entry in writer.fs.ls(folder, detail=True) if writer.fs.exists(folder) else []:
        if entry["type"] == "directory" and entry["name"].rsplit("/", 1)[-1] != f"step-{step}":
            writer.fs.rm(entry["name"], recursive=True)
