"""From how a job's last attempt ended to the exit class that is recorded."""

from marin_core.records.outcome import ExitClass

# By the value of `marin_core.jobs.FailureClass`; the records know nothing of jobs.
_OF_FAILURE = {
    "preempted": ExitClass.PREEMPTED,
    "evicted": ExitClass.PREEMPTED,
    "out of memory": ExitClass.OUT_OF_MEMORY,
    "application error": ExitClass.BUG,
    "refused by the task": ExitClass.BUG,
    "image cannot be pulled": ExitClass.INFRASTRUCTURE,
    "configuration": ExitClass.INFRASTRUCTURE,
    "deleted from outside": ExitClass.INFRASTRUCTURE,
    "infrastructure": ExitClass.INFRASTRUCTURE,
    "unknown": ExitClass.INFRASTRUCTURE,
}


def exit_class_of(failure: str | None, *, cancelled: bool = False) -> ExitClass:
    """The exit class of a job that ended without its artifact; `failure` is the value of its failure class, None if
    the launcher did not say.

    Raises:
        KeyError: no launcher has such a failure class.
    """
    if cancelled:
        return ExitClass.CANCELLED
    return ExitClass.INFRASTRUCTURE if failure is None else _OF_FAILURE[failure]
