"""Every way in which a job can end has its exit class."""

import pytest

from marin_assets.job_outcomes import exit_class
from marin_core.jobs import FailureClass, JobState, JobStatus
from marin_core.records.exit_class import exit_class_of
from marin_core.records.outcome import ExitClass


@pytest.mark.parametrize("failure", FailureClass)
def test_every_failure_class_has_an_exit_class(failure: FailureClass) -> None:
    found = exit_class_of(failure.value)
    assert (found is ExitClass.PREEMPTED) == failure.is_disruption
    assert found not in (ExitClass.CANCELLED, ExitClass.DIVERGED)


def test_what_was_cancelled_is_so_whatever_became_of_its_processes() -> None:
    assert exit_class_of("out of memory", cancelled=True) is ExitClass.CANCELLED
    assert exit_class(JobStatus(JobState.CANCELLED, "cancelled")) is ExitClass.CANCELLED


def test_a_cluster_s_application_error_may_be_the_chips_memory() -> None:
    said = "XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 9.8G at the bottom of memory"
    status = JobStatus(JobState.FAILED, said, FailureClass.APPLICATION)
    assert exit_class(status) is ExitClass.OUT_OF_MEMORY
    assert exit_class(JobStatus(JobState.FAILED, "ValueError: no", FailureClass.APPLICATION)) is ExitClass.BUG
