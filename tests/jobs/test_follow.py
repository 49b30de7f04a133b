"""Following jobs to their end, or until nobody wants them any more."""

from pathlib import Path

import pytest

from marin_core.build import BuildOptions
from marin_core.jobs import JobHandle, JobSpec, JobState, JobStatus, LocalLauncher, follow
from marin_core.jobs import launcher as following
from marin_core.store import Store
from tests.jobs.test_local import raw


@pytest.mark.parametrize("outcome", ["unwanted", "leave"])
def test_local_jobs_end_with_their_follower(outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local worker cannot outlive its launcher, so that to leave it is to cancel it."""
    monkeypatch.setattr(following, "_STILL_WANTED_SECONDS", 0)
    store = Store(str(tmp_path / "store"))
    launcher = LocalLauncher(store, tmp_path / "state", BuildOptions(tmp_path / "scratch"), cores=1)
    handles = [launcher.submit(JobSpec(raw("sqlalchemy", 5_000_000 + n), ("cpu-1",))) for n in range(2)]
    told: list[JobState] = []

    def on_change(_: JobHandle, status: JobStatus) -> None:
        told.append(status.state)
        if outcome == "leave" and status.state is JobState.STARTING:
            raise KeyboardInterrupt

    if outcome == "unwanted":
        follow(handles, on_change, still_wanted=lambda: JobState.STARTING not in told)
        assert {handle.status().state for handle in handles} == {JobState.CANCELLED}
    else:
        with pytest.raises(KeyboardInterrupt):
            follow(handles, on_change, on_interrupt=lambda: "leave")
    launcher.close()
    assert store.records("raw/sqlalchemy") == []


def test_an_error_of_the_follower_ends_no_job_that_can_outlive_it() -> None:
    """A database that is away for a moment is nobody's wish to end a training run."""

    class ClusterJob:
        job = JobSpec(raw("fsspec"), ("v5p-8",))
        left = False

        def status(self) -> JobStatus:
            return JobStatus(JobState.RUNNING)

        def cancel(self) -> None:
            raise AssertionError("cancelled")

        def detach(self) -> None:
            self.left = True

    def on_change(_: JobHandle, status: JobStatus) -> None:
        raise ConnectionError("the database is away")

    handle = ClusterJob()
    with pytest.raises(ConnectionError):
        follow([handle], on_change)
    assert handle.left
