"""Sensors that record what runs came to: one for each way to end, and one for what none of them saw."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from marin_assets.recording import ENDED, Recorder, skipping_unreadable

_WATCHED = {"success": dg.DagsterRunStatus.SUCCESS, "cancellation": dg.DagsterRunStatus.CANCELED}
_CATCH_UP_SECONDS = 60
_FRESH_SECONDS = 10
_PAGE = 20


def recording_sensors(recorder: Recorder) -> Sequence[dg.SensorDefinition]:
    """Sensors that run wherever a daemon does. Runs of the command line have no origin that Dagster could match with a
    code location, so all are watched; the recorder leaves alone what is not its own."""
    return [
        *(_on_status(recorder, name, status) for name, status in _WATCHED.items()),
        _on_failure(recorder),
        _missed(recorder),
    ]


def _on_status(recorder: Recorder, name: str, status: dg.DagsterRunStatus) -> dg.SensorDefinition:
    @dg.run_status_sensor(
        run_status=status,
        name=f"record_{name}",
        description=f"Records what a run came to that ended in {name}.",
        monitor_all_code_locations=True,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def record(context: dg.RunStatusSensorContext) -> None:
        recorder.record(context.instance, context.dagster_run.run_id)

    return record


def _on_failure(recorder: Recorder) -> dg.SensorDefinition:
    @dg.run_failure_sensor(
        name="record_failure",
        description="Records what a run came to that failed, and why.",
        monitor_all_code_locations=True,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def record(context: dg.RunFailureSensorContext) -> None:
        recorder.record(context.instance, context.dagster_run.run_id)

    return record  # type: ignore[return-value]


def _missed(recorder: Recorder) -> dg.SensorDefinition:
    @dg.sensor(
        name="record_missed_runs",
        description="Records runs that ended while no daemon ran, and those whose process was killed.",
        minimum_interval_seconds=_CATCH_UP_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def record(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        dead = recorder.end_the_dead(context.instance)
        # The cursor is the time of the last change that was looked at; a change as fresh as these may not be seen yet.
        ended = context.instance.get_run_records(
            dg.RunsFilter(
                statuses=ENDED,
                updated_after=datetime.fromisoformat(context.cursor) if context.cursor else None,
                updated_before=datetime.now(UTC) - timedelta(seconds=_FRESH_SECONDS),
            ),
            limit=_PAGE,
            order_by="update_timestamp",
            ascending=True,
        )
        missed = []
        for run_id in [*dead, *(record.dagster_run.run_id for record in ended)]:
            with skipping_unreadable(run_id, context.log.error):
                if recorder.record(context.instance, run_id):
                    missed.append(run_id)
        if ended:
            context.update_cursor(ended[-1].update_timestamp.isoformat())
        return dg.SkipReason(f"recorded {len(missed)} runs that nobody saw end" if missed else "nothing was missed")

    return record
