"""What became of a job, as Dagster metadata: on the materialization of what it made, or else as an observation of what
it was to make. `run_outcomes.py` reads it back."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import dagster as dg

from marin_assets.following import JobEnd
from marin_assets.keys import asset_key
from marin_assets.metadata import job_metadata
from marin_core.errors import MarinError
from marin_core.jobs import JobSpec, JobState, JobStatus
from marin_core.jobs.failures import failure_of, tells_of_memory
from marin_core.jobs.pools import parse_pool
from marin_core.jobs.spec import FailureClass
from marin_core.records.exit_class import exit_class_of
from marin_core.records.outcome import ExitClass
from marin_core.store import ArtifactRecord, ArtifactSpec

# Marks an observation as one of these; its value is the outcome's status, or that there is none yet.
OUTCOME = "outcome"
RUNNING = "running"


class RunDiverged(MarinError):
    """A training run whose loss is no number. It is committed, and of no use to who asked for it."""


def end_metadata(end: JobEnd) -> dict[str, dg.MetadataValue]:
    """Where a job ran, when, and what that cost in chips (cores of a `cpu` pool) times hours; and how it went."""
    pool = end.job.pools[0]
    told: dict[str, Any] = {"pool": pool, "ended": _time(end.ended)}
    if end.began:
        hours = (end.ended - end.began).total_seconds() / 3600
        told |= {"began": _time(end.began), "chip_hours": parse_pool(pool).chips * hours}
    return _metadata(told) | job_metadata(end.status)


def begun_job(job: JobSpec, began: datetime) -> dg.AssetObservation:
    """A job that has begun, for whoever wants to know of it should nobody live to tell its end."""
    spec = job.artifact
    told = {OUTCOME: RUNNING, "fingerprint": spec.fingerprint, "pool": job.pools[0], "began": _time(began)}
    return dg.AssetObservation(asset_key(spec.name), partition=spec.partition, metadata=_metadata(told))


def unfinished_job(end: JobEnd) -> dg.AssetObservation:
    """A job that ended without its artifact."""
    now = end.status.progress or {}
    cancelled = end.status.state is JobState.CANCELLED
    told = {
        OUTCOME: "cancelled" if cancelled else "failed",
        "exit_class": exit_class(end.status).value,
        "reason": end.status.reason,
        **_step(now.get("step"), now.get("steps")),
        "loss": now.get("loss"),
    }
    return _observation(end.job.artifact, told, end)


def diverged_run(end: JobEnd, record: ArtifactRecord) -> dg.AssetObservation:
    """A training run that was committed, and has no loss."""
    spec, done = end.job.artifact, record.summary["steps"]
    told = {
        OUTCOME: "failed",
        "exit_class": ExitClass.DIVERGED.value,
        "reason": divergence(spec, record),
        **_step(done, spec.config["plan"]["steps"]),
        "wandb": record.summary.get("wandb_url"),
    }
    return _observation(spec, told, end)


def finished_job(end: JobEnd, record: ArtifactRecord) -> dg.AssetObservation:
    """A training run that was made in the step of another asset, and is not shown as a materialization there."""
    told = {
        OUTCOME: "succeeded",
        **run_numbers(record),
        "wandb": record.summary.get("wandb_url"),
    }
    return _observation(end.job.artifact, told, end)


def run_numbers(record: ArtifactRecord) -> dict[str, Any]:
    """The last step of a training run, the steps of its plan, and its final loss; nothing of another artifact."""
    if record.payload["task"] != "train":
        return {}
    steps = record.payload["config"]["plan"]["steps"]
    return {**_step(record.summary["steps"], steps), "loss": record.summary["eval_loss"]}


def divergence(spec: ArtifactSpec, record: ArtifactRecord) -> str:
    """What to say of a run that diverged."""
    return (
        f"{spec.label} diverged at step {record.summary['steps'] - 1}: the loss is no number; the run is recorded and "
        f"stays out of the fits; change the recipe to train it differently"
    )


def error_metadata(error: MarinError) -> dict[str, dg.MetadataValue]:
    """The exit class of an error that ends a step."""
    if isinstance(error, RunDiverged):
        return _metadata({"exit_class": ExitClass.DIVERGED.value})
    return _metadata({"exit_class": exit_class_of(failure_of(error).value).value})


def exit_class(status: JobStatus) -> ExitClass:
    """Of which class the end of a job without its artifact is."""
    failure = status.failure
    if failure is FailureClass.APPLICATION and tells_of_memory(status.reason):
        # A cluster does not know that it was the chips' memory that did not suffice.
        failure = FailureClass.OUT_OF_MEMORY
    return exit_class_of(failure.value if failure else None, cancelled=status.state is JobState.CANCELLED)


def _observation(spec: ArtifactSpec, told: Mapping[str, Any], end: JobEnd) -> dg.AssetObservation:
    # Where there is no log, what the task said of itself.
    status = replace(end.status, log_tail=end.status.log_tail or end.status.messages)
    metadata = _metadata({**told, "fingerprint": spec.fingerprint}) | end_metadata(replace(end, status=status))
    return dg.AssetObservation(asset_key(spec.name), partition=spec.partition, metadata=metadata)


def _step(done: int | None, steps: int | None) -> dict[str, Any]:
    return {"last_step": done - 1 if done else None, "steps": steps}


def _metadata(told: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    known = {name: value for name, value in told.items() if value is not None}
    return {name: _value(value) for name, value in known.items()}


def _value(value: str | int | float) -> dg.MetadataValue:
    match value:
        case int():
            return dg.MetadataValue.int(value)
        case float():
            return dg.MetadataValue.float(value)
        case str() if value.startswith("https://"):
            return dg.MetadataValue.url(value)
        case _:
            return dg.MetadataValue.text(value)


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
