"""What a run prints in the terminal: messages, one line each. Dagster's own event trail is in the UI."""

import logging
import sys

import dagster as dg
from dagster._core.events import DagsterEventType

_SHOWN_EVENTS = {
    DagsterEventType.STEP_START,
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.RUN_FAILURE,
    DagsterEventType.RUN_SUCCESS,
    DagsterEventType.ASSET_CHECK_EVALUATION,
}


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        meta = getattr(record, "dagster_meta", None) or {}
        event = meta.get("dagster_event")
        step = meta.get("step_key") or ""
        text = meta.get("orig_message") or record.getMessage()
        if event is not None:
            text = _event_text(event) or text
        time = self.formatTime(record, "%H:%M:%S")
        level = "" if record.levelno < logging.WARNING else f"{record.levelname}: "
        return f"{time} {step + ': ' if step else ''}{level}{text}"


def _event_text(event: dg.DagsterEvent) -> str | None:
    if event.event_type is DagsterEventType.STEP_FAILURE:
        error = event.step_failure_data.error
        failure = event.step_failure_data.user_failure_data
        if failure and failure.description:
            return failure.description
        return error.to_string() if error else None
    return event.message


class _OnlyShown(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        meta = getattr(record, "dagster_meta", None) or {}
        event = meta.get("dagster_event")
        if event is None:
            return record.levelno >= logging.INFO
        return event.event_type in _SHOWN_EVENTS


@dg.logger(description="One line per message, in the terminal.")
def console_logger(init_context: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("marin", level=logging.DEBUG)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_OnlyShown())
    handler.setFormatter(_OneLine())
    logger.addHandler(handler)
    return logger
