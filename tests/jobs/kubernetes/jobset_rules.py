"""What JobSet's and the Job controller's documentation say becomes of a JobSet with certain pods. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class ChildJob:
    """One Job of a JobSet: its pods by completion index, `None` for one that was made and is gone."""

    name: str
    replicated: str
    index: int
    spec: Raw
    pods: Mapping[int, Raw | None] = field(default_factory=dict)

    @property
    def completions(self) -> int:
        return self.spec.get("completions", 1)

    @property
    def succeeded(self) -> bool:
        return all(_phase(self.pods.get(index)) == "Succeeded" for index in range(self.completions))

    @property
    def ready(self) -> bool:
        return all(_phase(self.pods.get(index)) in ("Running", "Succeeded") for index in range(self.completions))

    @property
    def failure(self) -> tuple[str, str] | None:
        """Reason and message of the Job's condition Failed."""
        failed = [pod for pod in self.pods.values() if pod and _phase(pod) == "Failed"]
        for pod in failed:
            for index, rule in enumerate(self.spec.get("podFailurePolicy", {}).get("rules", ())):
                if rule["action"] == "FailJob" and (said := _matches(rule, pod)):
                    return "PodFailurePolicy", f"{said} matching FailJob rule at index {index}"
        if len(failed) + list(self.pods.values()).count(None) > self.spec.get("backoffLimit", 6):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        return None


@dataclass(frozen=True)
class Action:
    """A rule's action, and the child Job it is for."""

    name: str
    job: str


def failure_action(job_set: Raw, failed: Sequence[ChildJob]) -> Action:
    """The first rule that matches any failed Job, in the order of the rules; else a restart that counts."""
    for rule in job_set["spec"].get("failurePolicy", {}).get("rules", ()):
        for job in failed:
            if _applies(rule, job):
                return Action(rule["action"], job.name)
    return Action("RestartJobSet", failed[0].name)


def _applies(rule: Raw, job: ChildJob) -> bool:
    assert job.failure
    reason, message = job.failure
    patterns = rule.get("onJobFailureMessagePatterns", ())
    return (
        _among(reason, rule.get("onJobFailureReasons"))
        and _among(job.replicated, rule.get("targetReplicatedJobs"))
        and (not patterns or any(re.search(pattern, message) for pattern in patterns))
    )


def _among(value: str, wanted: Iterable[str] | None) -> bool:
    return not wanted or value in wanted


def _matches(rule: Raw, pod: Raw) -> str | None:
    """What the Job controller says of a pod that a rule of a pod failure policy matches."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for pattern in rule.get("onPodConditions", ()):
        for condition in pod["status"].get("conditions") or ():
            if condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True"):
                return f"Pod {name} has condition {condition['type']}"
    if codes := rule.get("onExitCodes"):
        for container in pod["status"].get("containerStatuses") or ():
            code = container["state"].get("terminated", {}).get("exitCode")
            if code and (code in codes["values"]) == (codes["operator"] == "In"):
                return f"Container {container['name']} for pod {name} failed with exit code {code}"
    return None


def _phase(pod: Raw | None) -> str | None:
    return pod["status"].get("phase", "Pending") if pod else None
