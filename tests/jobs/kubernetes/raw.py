"""Raw objects as API servers write them, with only what a test is about spelled out."""

from datetime import UTC, datetime, timedelta
from typing import Any

from marin_core.jobs.kubernetes.sight import FAILURES, JOB_LABEL, PREEMPTIONS, Sight, Terms

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAME = "checkpoints-delphi-0123abcd"
NODE = "gke-v5p-0"
TERMS = Terms(max_failures=1, max_preemptions=100, pools=("v5p-64",), region="us-east5", namespace="lab", queue="train")


def ago(minutes: float = 0, seconds: float = 0) -> str:
    return (NOW - timedelta(minutes=minutes, seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, reason: str = "", message: str = "", status: str = "True", minutes: float = 0) -> dict:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(minutes)}


def job(
    *conditions: dict,
    kind: str = "Job",
    created: float = 60,
    recorded: tuple[int, int] = (0, 0),
    uid: str = "job-1",
    suspend: bool = False,
    **status: Any,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {
            "name": NAME,
            "uid": uid,
            "creationTimestamp": ago(created),
            "labels": {JOB_LABEL: NAME, **({"kueue.x-k8s.io/queue-name": "train"} if suspend else {})},
            "annotations": {PREEMPTIONS: str(recorded[0]), FAILURES: str(recorded[1])},
        },
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions), **status},
    }


def pod(
    name: str = "p0",
    *conditions: dict,
    phase: str = "Running",
    state: dict | None = None,
    created: float = 50,
    owner: str = "job-1",
    labels: dict | None = None,
    node: str | None = NODE,
    deleted: float | None = None,
    gone: float | None = None,
    **status: Any,
) -> dict[str, Any]:
    container = {"name": "worker", "state": {"running": {"startedAt": ago(created)}} if state is None else state}
    metadata: dict[str, Any] = {
        "name": f"{NAME}-{name}",
        "uid": name,
        "creationTimestamp": ago(created),
        "ownerReferences": [{"uid": owner}],
        "labels": {JOB_LABEL: NAME, **(labels or {})},
    }
    if deleted is not None:
        metadata |= {"deletionTimestamp": ago(deleted - 5), "deletionGracePeriodSeconds": 300}
    spec = {"nodeName": node, "containers": [{"image": "lab/marin:1", "resources": {"limits": {"memory": "64Gi"}}}]}
    whole: dict[str, Any] = {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, "conditions": list(conditions), "containerStatuses": [container], **status},
    }
    if gone is not None:
        whole["goneAt"] = (NOW - timedelta(minutes=gone)).isoformat()
    return whole


def failed(
    name: str = "p0", code: int = 1, *conditions: dict, at: float = 5, reason: str = "Error", **more: Any
) -> dict:
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": ago(50), "finishedAt": ago(at)}}
    return pod(name, *conditions, phase="Failed", state=state, **more)


def pending(*conditions: dict, waiting: str | None = None, message: str = "", **more: Any) -> dict:
    """Waiting for a node, or on one if it waits for something else."""
    state = {"waiting": {"reason": waiting, "message": message}} if waiting else {}
    node = NODE if waiting else None
    return pod("p0", *conditions, phase="Pending", state=state, node=node, **more)


def event(reason: str, message: str, about: str = f"{NAME}-p0", kind: str = "Pod", minutes: float = 1) -> dict:
    return {
        "metadata": {"creationTimestamp": ago(minutes)},
        "involvedObject": {"kind": kind, "name": about},
        "reason": reason,
        "message": message,
        "firstTimestamp": ago(minutes),
        "lastTimestamp": ago(minutes),
    }


def sight(raw_job: dict | None, *pods: dict, **more: Any) -> Sight:
    return Sight(object=raw_job, now=NOW, pods=pods, **more)
