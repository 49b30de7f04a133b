"""The status of a JobSet after a look at its child Jobs. Pure but for the clock."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tests.jobs.kubernetes.jobset_rules import ChildJob, Raw, failure_action

_COUNT = "restartsCountTowardsMax"


def is_over(job_set: Raw) -> bool:
    return bool((job_set.get("status") or {}).get("terminalState"))


def suspended(job_set: Raw) -> dict[str, Any]:
    return _with_condition(job_set, "Suspended", "True", "SuspendedJobs", "jobset is suspended")


def advanced(job_set: Raw, jobs: Sequence[ChildJob], failed: Sequence[ChildJob]) -> dict[str, Any]:
    """What is next once none of it is suspended: over, or another attempt, or the same as before."""
    counts = {"replicatedJobsStatus": _replicated(job_set, jobs)}
    if failed:
        return {**counts, **_after_failure(job_set, failed)}
    if all(job.succeeded for job in jobs):
        completed = _with_condition(job_set, "Completed", "True", "AllJobsCompleted", "jobset completed successfully")
        return {**counts, **completed, "terminalState": "Completed"}
    if _condition(job_set, "Suspended") == "True":
        return {**counts, **_with_condition(job_set, "Suspended", "False", "ResumeJobs", "jobset is resumed")}
    return counts


def _after_failure(job_set: Raw, failed: Sequence[ChildJob]) -> dict[str, Any]:
    policy, status = job_set["spec"].get("failurePolicy"), job_set.get("status") or {}
    if policy is None:
        return _failed(job_set, "FailedJobs", "jobset failed due to one or more job failures", failed[0].name)
    action = failure_action(job_set, failed)
    counted = status.get(_COUNT, 0)
    if action.name == "FailJobSet":
        return _failed(
            job_set, "FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action", action.job
        )
    if action.name == "RestartJobSetAndIgnoreMaxRestarts":
        return {"restarts": status.get("restarts", 0) + 1, _COUNT: counted}
    if counted >= policy.get("maxRestarts", 0):
        return _failed(
            job_set, "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts", action.job
        )
    return {"restarts": status.get("restarts", 0) + 1, _COUNT: counted + 1}


def _failed(job_set: Raw, reason: str, message: str, job: str) -> dict[str, Any]:
    condition = _with_condition(job_set, "Failed", "True", reason, f"{message} (first failed job: {job})")
    return {**condition, "terminalState": "Failed"}


def _condition(job_set: Raw, kind: str) -> str | None:
    conditions = (job_set.get("status") or {}).get("conditions") or ()
    return next((condition["status"] for condition in conditions if condition["type"] == kind), None)


def _with_condition(job_set: Raw, kind: str, value: str, reason: str, message: str) -> dict[str, Any]:
    conditions = (job_set.get("status") or {}).get("conditions") or []
    if _condition(job_set, kind) == value:
        return {"conditions": conditions}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    new = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now}
    return {"conditions": [*(condition for condition in conditions if condition["type"] != kind), new]}


def _replicated(job_set: Raw, jobs: Sequence[ChildJob]) -> list[dict[str, Any]]:
    def count(name: str, **of: Sequence[bool]) -> dict[str, Any]:
        return {"name": name, "suspended": 0, **{key: sum(values) for key, values in of.items()}}

    rows = []
    for replicated in job_set["spec"]["replicatedJobs"]:
        own = [job for job in jobs if job.replicated == replicated["name"]]
        rows.append(
            count(
                replicated["name"],
                active=[not job.succeeded and not job.failure and bool(job.pods) for job in own],
                ready=[job.ready and not job.failure for job in own],
                failed=[bool(job.failure) for job in own],
                succeeded=[job.succeeded for job in own],
            )
        )
    return rows
