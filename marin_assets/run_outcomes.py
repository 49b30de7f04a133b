"""What a Dagster run came to, read from its event log: a row for everything that it built and for everything that it
tried in vain. What it found in the store already has none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterEventType as Type
from dagster._core.events import DagsterEvent
from dagster._core.events.log import EventLogEntry
from dagster_shared.error import SerializableErrorInfo

from marin_assets import run_tags
from marin_assets.job_outcomes import OUTCOME, RUNNING
from marin_assets.keys import artifact_name, group
from marin_assets.metadata import lines_of, shortened
from marin_core.jobs.failures import tells_of_memory
from marin_core.records.exit_class import exit_class_of
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.unfinished import how_far
from marin_core.store import Store

_TYPES = {
    Type.ASSET_MATERIALIZATION_PLANNED,
    Type.ASSET_MATERIALIZATION,
    Type.ASSET_OBSERVATION,
    Type.STEP_START,
    Type.STEP_SUCCESS,
    Type.STEP_FAILURE,
    Type.RUN_FAILURE,
}
# To record that records were written would never come to an end.
_OF_RECORDS = "records"
_INTERRUPTS = ("DagsterExecutionInterruptedError", "KeyboardInterrupt")
_MESSAGES = 20

Place = tuple[str, str | None]


@dataclass
class _Read:
    """What the events say. Places are (asset, partition)."""

    planned: dict[str, Place] = field(default_factory=dict)
    began: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    rows: dict[Place, Outcome] = field(default_factory=dict)
    # What is known of jobs that have begun and not ended.
    running: dict[Place, dict[str, Any]] = field(default_factory=dict)
    # Steps with jobs that ended without their artifacts, which say why the step failed.
    told: set[str] = field(default_factory=set)


def run_outcomes(instance: dg.DagsterInstance, run: dg.DagsterRun, store: Store) -> list[Outcome]:
    """The outcomes of a run that has ended. How far a training run came whose end nobody told stands in the store."""
    base = _Base(run)
    read = _Read()
    last: EventLogEntry | None = None
    for entry in instance.all_logs(run.run_id, of_type=_TYPES):
        _take(entry, read, base, lambda step: _messages(instance, run, step))
        last = entry if entry.dagster_event_type is Type.RUN_FAILURE else last
    if run.status is not dg.DagsterRunStatus.SUCCESS:
        _add_unfinished(instance, run, base, read, last, store)
    kept = (row for row in read.rows.values() if row.status != "succeeded" or group(row.asset) != _OF_RECORDS)
    return sorted(kept, key=lambda row: (row.ended, row.asset, row.partition or ""))


class _Base:
    """What all rows of a run have in common."""

    def __init__(self, run: dg.DagsterRun):
        tags = run_tags.own_tags(run)
        dirty = tags.get(run_tags.DIRTY) or None
        self._common = {
            "dagster_run": run.run_id,
            "commit": tags.get(run_tags.COMMIT) or None,
            "dirty": None if dirty is None else dirty == "true",
            "command": tags.get(run_tags.COMMAND),
            "user": tags.get(run_tags.USER),
            "host": tags.get(run_tags.HOST),
            "profile": tags.get(run_tags.PROFILE),
        }

    def outcome(self, place: Place, status: str, **known: Any) -> Outcome:
        asset, partition = place
        return Outcome(asset=asset, partition=partition, status=status, **(self._common | known))


def _take(entry: EventLogEntry, read: _Read, base: _Base, messages: Callable[[str], tuple[str, ...]]) -> None:
    event, step, now = entry.get_dagster_event(), entry.step_key or "", _time(entry.timestamp)
    match event.event_type:
        case Type.ASSET_MATERIALIZATION_PLANNED if event.asset_key:
            read.planned.setdefault(step, (artifact_name(event.asset_key), event.partition))
        case Type.STEP_START:
            read.began[step] = now
        case Type.STEP_SUCCESS:
            read.ended.add(step)
        case Type.ASSET_MATERIALIZATION:
            made = event.step_materialization_data.materialization
            known = _values(made.metadata)
            read.running.pop((artifact_name(made.asset_key), made.partition), None)
            if known.get("reused") is False:
                place = (artifact_name(made.asset_key), made.partition)
                read.rows[place] = base.outcome(place, "succeeded", **_success(known, now))
        case Type.ASSET_OBSERVATION:
            seen = event.asset_observation_data.asset_observation
            known = _values(seen.metadata)
            place = (artifact_name(seen.asset_key), seen.partition)
            if known.get(OUTCOME) == RUNNING:
                read.running[place] = known
            elif OUTCOME in known:
                read.running.pop(place, None)
                read.rows[place] = base.outcome(place, known[OUTCOME], **_job(known, now))
                if known[OUTCOME] != "succeeded" and known.get("exit_class") != ExitClass.DIVERGED.value:
                    read.told.add(step)
        case Type.STEP_FAILURE:
            read.ended.add(step)
            place = read.planned.get(step) or (step.replace("__", "/"), None)
            there = read.rows.get(place)
            if step not in read.told and (there is None or there.status == "succeeded"):
                known = {"began": read.began.get(step), "ended": now, **_step_failure(event, lambda: messages(step))}
                status = "cancelled" if known["exit_class"] is ExitClass.CANCELLED else "failed"
                if there:  # it was made, and then something else of the step failed
                    read.rows[place] = replace(there, status=status, **known)
                else:
                    read.rows[place] = base.outcome(place, status, **known)
        case _:
            pass


def _success(known: Mapping[str, Any], now: str) -> dict[str, Any]:
    trained = {}
    if "last_step" in known:  # a training run
        trained = {"steps": known["last_step"] + 1, "loss": known.get("eval_loss")}
    commit, _, dirty = known.get("commit", "unknown").partition(" ")
    code = {} if commit == "unknown" else {"commit": commit, "dirty": dirty == "(dirty)"}
    return {
        **_job(known, now),
        # Numbers of these names may be anything in another summary.
        "steps": None,
        "loss": None,
        "ended": known.get("built_at", now),
        "host": known.get("host"),
        **trained,
        **code,
    }


def _job(known: Mapping[str, Any], now: str) -> dict[str, Any]:
    exit_class = known.get("exit_class")
    return {
        "began": known.get("began"),
        "ended": known.get("ended", now),
        "fingerprint": known.get("fingerprint"),
        "exit_class": ExitClass(exit_class) if exit_class else None,
        "reason": known.get("reason", ""),
        "last_step": known.get("last_step"),
        "steps": known.get("steps"),
        "loss": known.get("loss"),
        "log_tail": lines_of(known["log_tail"]) if exit_class and "log_tail" in known else (),
        "pool": known.get("pool"),
        "chip_hours": known.get("chip_hours"),
        "wandb_url": known.get("wandb_url") or known.get("wandb"),
        "preemptions": known.get("preemptions", 0),
        "failures": known.get("failures", 0),
    }


def _step_failure(event: DagsterEvent, messages: Callable[[], tuple[str, ...]]) -> dict[str, Any]:
    """Why a step failed: what its error says for people, else the error."""
    failure = event.step_failure_data
    error = _root(failure.error) if failure.error else None
    said = failure.user_failure_data
    lines = (said.description or "").splitlines() if said else []
    if said and lines:
        known = _values(said.metadata)
        job = known.get("failure_class")
        exit_class = ExitClass(known["exit_class"]) if "exit_class" in known else exit_class_of(job) if job else None
        log_tail = tuple(lines[1:]) or messages()
        return {"exit_class": exit_class or ExitClass.BUG, "reason": lines[0], "log_tail": log_tail}
    if error is None:
        return {"exit_class": ExitClass.INFRASTRUCTURE, "reason": event.message or "", "log_tail": messages()}
    trace = [line for text in error.stack for line in text.rstrip().splitlines()]
    return {"exit_class": _of_error(error), "reason": _one_line(error), "log_tail": shortened(trace)}


def _add_unfinished(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    base: _Base,
    read: _Read,
    last: EventLogEntry | None,
    store: Store,
) -> None:
    """What a run was at when it ended; if it had not begun anything, all that it was to make."""
    record = instance.get_run_record_by_id(run.run_id)
    now = _time(record.end_time or record.update_timestamp.timestamp()) if record else _time(0)
    cancelled = run.status is dg.DagsterRunStatus.CANCELED
    exit_class, reason = (
        (ExitClass.CANCELLED, "the run was cancelled") if cancelled else _run_failure(instance, run, last)
    )
    status = "cancelled" if cancelled else "failed"
    for place, known in read.running.items():
        far = how_far(store, place[0], known["fingerprint"])
        told = {"ended": now, "exit_class": exit_class, "reason": reason, **far}
        read.rows[place] = base.outcome(place, status, **(_job(known, now) | told))
    steps = [step for step in read.began if step not in read.ended]
    if not read.began and not read.rows:
        steps = list(read.planned)
    for step in steps:
        place = read.planned.get(step) or (step.replace("__", "/"), None)
        if place not in read.rows:
            read.rows[place] = base.outcome(
                place,
                status,
                began=read.began.get(step),
                ended=now,
                exit_class=exit_class,
                reason=reason,
                log_tail=_messages(instance, run, step),
            )


def _run_failure(instance: dg.DagsterInstance, run: dg.DagsterRun, last: EventLogEntry | None) -> tuple[ExitClass, str]:
    event = last.get_dagster_event() if last else None
    error = event.job_failure_data.error if event and event.event_specific_data else None
    if error:
        # The lab could not be opened: what it needs of the place was not there.
        opening = error.cls_name and "Resource" in error.cls_name
        return ExitClass.INFRASTRUCTURE if opening else _of_error(_root(error)), _one_line(_root(error))
    said = _end_of_process(instance, run) or (event.message if event else None)
    return ExitClass.INFRASTRUCTURE, said or "the process that ran it is gone"


def _end_of_process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """How the process of a run ended, where the code server that had started it saw that. The failure that it reports
    then says only that somebody marked the run as failed."""
    for entry in reversed(instance.all_logs(run.run_id, of_type=Type.ENGINE_EVENT)):
        _, found, how = entry.message.partition(f"Run execution process for {run.run_id} ")
        if found:
            return f"the process that ran it {how.split('. ')[0].removesuffix('.')}"
    return None


def _of_error(error: SerializableErrorInfo) -> ExitClass:
    if error.cls_name in _INTERRUPTS:
        return ExitClass.CANCELLED
    out_of_memory = error.cls_name == "MemoryError" or tells_of_memory(error.message)
    return ExitClass.OUT_OF_MEMORY if out_of_memory else ExitClass.BUG


def _root(error: SerializableErrorInfo) -> SerializableErrorInfo:
    while error.cause:
        error = error.cause
    return error


def _one_line(error: SerializableErrorInfo) -> str:
    said = error.message.strip().splitlines() or [error.cls_name or "an error without a message"]
    return said[0].removeprefix("dagster._core.definitions.events.Failure: ")


def _messages(instance: dg.DagsterInstance, run: dg.DagsterRun, step: str) -> tuple[str, ...]:
    """The last lines that a step wrote to the run's log."""
    entries: Sequence[EventLogEntry] = instance.all_logs(run.run_id)
    said = [e.user_message for e in entries if e.step_key == step and e.dagster_event is None and e.user_message]
    return shortened([line for text in said for line in text.splitlines()][-_MESSAGES:])


def _values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
