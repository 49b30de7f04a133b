"""Whose job it is that lies on a real API server: that of a store, and of the run that started it."""

from typing import Any

import pytest

from marin_core.build import BuildOptions
from marin_core.jobs import FailureClass, JobState, follow, open_launcher
from marin_core.jobs.kubernetes import lifecycle
from marin_core.jobs.kubernetes.launcher import KubernetesLauncher
from marin_core.store import Store
from tests.jobs.kubernetes.lab import Lab, lab, until

__all__ = ["lab"]

pytestmark = pytest.mark.slow


def other_launcher(lab: Lab, store: Store | None = None, run: str | None = "run-2") -> KubernetesLauncher:
    """As another process would open it."""
    options = BuildOptions(lab.folder / "scratch", dagster_run=run)
    opened = open_launcher(store or lab.store, lab.folder / "state-2", options, lab.place)
    assert isinstance(opened, KubernetesLauncher)
    return opened


def test_another_stores_job_of_the_same_name_is_left_alone(lab: Lab) -> None:
    job = lab.job([["sleep", 6], ["commit", 1]])
    mine = lab.launcher.submit(job)
    until(lambda: mine.status().state is JobState.RUNNING)
    launcher = other_launcher(lab, Store(str(lab.folder / "other")))
    handle, _ = lab.run(job, launcher)
    status = handle.status()
    assert (status.state, status.failure) == (JobState.FAILED, FailureClass.CONFIGURATION)
    assert f"for another store, {lab.store.root}" in status.reason and "another namespace" in status.reason
    handle.cancel()
    launcher.close()
    follow([mine], lambda *_: None)
    assert (mine.status().state, mine.status().retries) == (JobState.SUCCEEDED, 0)


@pytest.mark.parametrize("run", ["run-2", None])
def test_a_run_that_only_attached_cancels_nothing(lab: Lab, run: str | None) -> None:
    job = lab.job([["sleep", 6], ["commit", 1]])
    mine = lab.launcher.submit(job)
    until(lambda: mine.status().state is JobState.RUNNING)
    launcher = other_launcher(lab, run=run)
    attached = launcher.submit(job)
    until(lambda: attached.status().state is JobState.RUNNING)
    attached.cancel()
    status = attached.status()
    assert status.state is JobState.CANCELLED
    assert status.reason.startswith("left to the run that started it, Dagster run run-1")
    launcher.close()
    follow([mine], lambda *_: None)
    assert (mine.status().state, mine.status().retries) == (JobState.SUCCEEDED, 0)


def test_a_job_made_again_is_still_that_of_the_run_that_started_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    original = lifecycle.manifest

    def doomed(*arguments: Any, **options: Any) -> dict:
        body = original(*arguments, **options)
        if options["preemptions"] == 0:
            notes = {"testbed/fail-after-seconds": "4", "testbed/fail-reason": "Preempted"}
            body["spec"]["template"]["metadata"]["annotations"] = notes
        return body

    monkeypatch.setattr(lifecycle, "manifest", doomed)
    job = lab.job([["sleep", 60]], max_failures=0)
    first = lab.launcher.submit(job)
    until(first.submitted.is_set)
    first.detach()
    launcher = other_launcher(lab)
    second = launcher.submit(job)
    until(lambda: second.status().preemptions == 1 and second.status().state is JobState.RUNNING)
    second.cancel()
    assert second.status().reason.startswith("left to the run that started it")
    launcher.close()
    # Dagster's retry of a run has its id.
    again = lab.open()
    third = again.submit(job)
    until(third.submitted.is_set)
    third.cancel()
    assert third.status().reason == "cancelled"
    again.close()
    lab.assert_nothing_is_left()
