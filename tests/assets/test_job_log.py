"""What a job tells Dagster's event log: all that a reader needs, and little however long it runs."""

import logging
from dataclasses import replace

import dagster as dg
import pytest
from dagster._serdes import serialize_value

from marin_assets.job_log import JobLog, duration, progress_text
from marin_core.jobs import JobSpec, JobState, JobStatus
from marin_core.store import ArtifactSpec

JOB = JobSpec(
    ArtifactSpec("checkpoints/delphi", "train", "1", {"plan": {"flops": 3e18}}, partition="3e18-d0512"), ("v5p-8",)
)
UNSCHEDULABLE = "no node pool with v5p-8 in us-east5: 0/3 nodes are available; autoscaler: quota exceeded"


class Told(logging.Handler):
    """A logger whose lines can be read, and a clock that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.now = 0.0
        logger = logging.Logger("job")
        logger.addHandler(self)
        self.log = JobLog(logger, clock=lambda: self.now)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def status(self, state: JobState, reason: str = "", job: JobSpec = JOB, **rest: object) -> None:
        self.log.update(job, JobStatus(state, reason, **rest))  # type: ignore[arg-type]


@pytest.fixture
def told() -> Told:
    return Told()


def progress(step: int) -> dict[str, float]:
    return {"step": step, "steps": 300_000, "loss": 3.0, "tokens_per_second": 1e5, "mfu": 0.41, "seconds_left": 9000}


def test_why_a_job_waits_is_told_at_once_and_then_ever_more_rarely(told: Told) -> None:
    for minute in range(30 * 60):
        told.now = minute * 60
        told.status(JobState.QUEUED, f"pending {minute} min: {UNSCHEDULABLE}")
    assert told.lines[0] == f"checkpoints/delphi [3e18-d0512]: pending 0 min: {UNSCHEDULABLE}"
    assert 10 < len(told.lines) < 30


def test_what_many_jobs_wait_for_is_told_once_for_all(told: Told) -> None:
    jobs = [JobSpec(replace(JOB.artifact, partition=f"3e18-d{width:04d}"), ("v5p-8",)) for width in range(512, 590)]
    for second in range(60):
        told.now = second
        for job in jobs:
            told.status(JobState.QUEUED, f"pending {second // 60} min: {UNSCHEDULABLE}", job)
    assert len(told.lines) == 2
    assert "and 77 more: pending 0 min: no node pool with v5p-8" in told.lines[1]


def test_another_reason_is_told_at_once(told: Told) -> None:
    told.status(JobState.QUEUED, "pending 0 min: waiting for the scheduler")
    told.now = 1.0
    told.status(JobState.QUEUED, f"pending 0 min: {UNSCHEDULABLE}")
    assert [UNSCHEDULABLE in line for line in told.lines] == [False, True]


def test_every_preemption_and_failure_is_told_once(told: Told) -> None:
    for count in range(1, 4):
        for _ in range(5):
            told.status(JobState.PREEMPTED, "the spot node was reclaimed", preemptions=count)
        told.status(JobState.RUNNING, preemptions=count)
    told.status(JobState.FAILED, "the worker ended with exit code 1, 2 times")
    assert len(told.lines) == 4
    assert told.lines[-1] == "checkpoints/delphi [3e18-d0512] failed: the worker ended with exit code 1, 2 times"


def test_a_retry_that_nobody_saw_is_told_when_it_runs(told: Told) -> None:
    told.status(JobState.RUNNING, "on node-a")
    told.status(JobState.RUNNING, "on node-b", failures=1)
    assert told.lines == [
        "checkpoints/delphi [3e18-d0512]: running on node-a",
        "checkpoints/delphi [3e18-d0512]: was started again (0 preemptions, 1 failures so far)",
        "checkpoints/delphi [3e18-d0512]: running on node-b",
    ]


def test_what_the_task_says_is_told_once(told: Told) -> None:
    told.status(JobState.RUNNING, messages=("resuming after step 5",))
    told.status(JobState.RUNNING, messages=("resuming after step 5", "saved"))
    assert told.lines == ["resuming after step 5", "saved"]


def test_three_days_of_training_leave_less_than_60_kB_in_the_event_log() -> None:
    """The bytes that Dagster really keeps, of a job that reports every five seconds for 72 hours."""

    @dg.asset
    def trained(context: dg.AssetExecutionContext) -> None:
        now = 0.0
        log = JobLog(context.log, clock=lambda: now)
        for second in range(0, 72 * 3600, 5):
            now = second
            log.update(JOB, JobStatus(JobState.RUNNING, progress=progress(second)))

    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([trained], instance=instance)
    entries = instance.all_logs(result.run_id)
    assert sum(entry.step_key == "trained" and "loss 3.000" in entry.user_message for entry in entries) > 15
    assert sum(len(serialize_value(entry)) for entry in entries) < 60_000


def test_a_job_that_is_preempted_a_hundred_times_and_talks_much_stays_within_that_and_its_failure_is_told() -> None:
    @dg.asset
    def trained(context: dg.AssetExecutionContext) -> None:
        now = 0.0
        log = JobLog(context.log, clock=lambda: now)
        for count in range(100):
            now += 600
            said = tuple(f"resuming after step {step}" for step in range(count))
            log.update(JOB, JobStatus(JobState.PREEMPTED, "reclaimed", preemptions=count + 1, messages=said))
            log.update(JOB, JobStatus(JobState.QUEUED, UNSCHEDULABLE, preemptions=count + 1, messages=said))
            log.update(JOB, JobStatus(JobState.RUNNING, "on node-a", preemptions=count + 1, messages=said))
        log.update(JOB, JobStatus(JobState.FAILED, "preempted 101 times", preemptions=100))

    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([trained], instance=instance)
    entries = instance.all_logs(result.run_id)
    assert sum(len(serialize_value(entry)) for entry in entries) < 60_000
    assert any("what it tells from now on is in its own log" in entry.user_message for entry in entries)
    assert any("failed: preempted 101 times" in entry.user_message for entry in entries)


def test_progress_in_words() -> None:
    assert progress_text(progress(1000)) == "step 1000/300000  loss 3.000  100,000 tokens/s  MFU 41.0%  2 h 30 min left"
    assert progress_text({"phase": "encode", "done": 3, "items": 40}) == "encode 3/40"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.6, "10 s"), (59.7, "1 min 00 s"), (725, "12 min 05 s"), (12_000, "3 h 20 min"), (187_200, "2 d 4 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
