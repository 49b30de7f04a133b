"""What a run prints in the terminal: one line per message, above the live progress. The full trail is in the UI."""

import logging
import os
from typing import Any

import dagster._loggers
from dagster._core.events import DagsterEvent, DagsterEventType
from rich.console import Console

# Dagster sends file descriptor 2 to a file while a step runs. This duplicate stays with the person.
console = Console(file=os.fdopen(os.dup(2), "w"), highlight=False, soft_wrap=True)

_SHOWN_EVENTS = {
    DagsterEventType.STEP_START,
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.RUN_FAILURE,
    DagsterEventType.RUN_SUCCESS,
    DagsterEventType.ASSET_CHECK_EVALUATION,
}


def install() -> None:
    """Make `ConsoleHandler` what Dagster builds for a run that configures no loggers."""
    dagster._loggers.create_console_logger = _console_logger  # type: ignore[attr-defined]


def _console_logger(name: str, level: int | str) -> logging.Logger:
    logger = logging.Logger(name, logging.DEBUG)
    logger.addHandler(ConsoleHandler())
    return logger


class ConsoleHandler(logging.Handler):
    """Prints log messages, and of Dagster's own events those that tell a person something."""

    def emit(self, record: logging.LogRecord) -> None:
        meta: dict[str, Any] = getattr(record, "dagster_meta", None) or {}
        event: DagsterEvent | None = meta.get("dagster_event")
        if event is None:
            text, shown = meta.get("orig_message") or record.getMessage(), record.levelno >= logging.INFO
        else:
            text, shown = _event_text(event), event.event_type in _SHOWN_EVENTS and not _is_passed_check(event)
        if shown:
            time = logging.Formatter().formatTime(record, "%H:%M:%S")
            step = f"{meta['step_key'].replace('__', '/')}: " if meta.get("step_key") else ""
            style = (
                "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else None
            )
            console.print(f"{time} {step}{text}", style=style, markup=False)


def _is_passed_check(event: DagsterEvent) -> bool:
    return event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION and event.asset_check_evaluation_data.passed


def _event_text(event: DagsterEvent) -> str:
    if event.event_type is DagsterEventType.STEP_START:
        return "started"
    if event.event_type is DagsterEventType.STEP_FAILURE:
        failure = event.step_failure_data
        if failure.user_failure_data and failure.user_failure_data.description:
            return failure.user_failure_data.description
        return failure.error.to_string() if failure.error else "failed"
    if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
        check = event.asset_check_evaluation_data
        said = f"check '{check.check_name}' on '{check.asset_key.to_user_string()}'"
        return f"{said} {'passed' if check.passed else 'did not pass'}: {check.description or 'look at it in the UI'}"
    if event.event_type is DagsterEventType.RUN_FAILURE and event.job_failure_data.error:
        error = event.job_failure_data.error
        while error.cause:
            error = error.cause
        # The step that failed has told the rest.
        said = error.message.removeprefix("dagster._core.definitions.events.Failure: ").strip().splitlines()
        return f"the run failed: {said[0] if said else error.cls_name}"
    return event.message or event.event_type_value
