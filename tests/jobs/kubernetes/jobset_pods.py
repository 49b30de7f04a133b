"""The pods of a JobSet's child Jobs, as the JobSet and the Job controller would make them."""

import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any

from tests.jobs.kubernetes.jobset_rules import ChildJob, Raw

PREFIX = "jobset.sigs.k8s.io/"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def child_jobs(job_set: Raw, pods: Sequence[Raw], made: AbstractSet[tuple[str, int]]) -> list[ChildJob]:
    """The Jobs of a JobSet with the pods of its present attempt. Of those that were made some may be gone."""
    jobs = []
    for replicated in job_set["spec"]["replicatedJobs"]:
        for index in range(replicated.get("replicas", 1)):
            name = f"{job_set['metadata']['name']}-{replicated['name']}-{index}"
            of_job: dict[int, Raw | None] = {completion: None for job, completion in made if job == name}
            for pod in pods:
                if pod["metadata"]["labels"]["job-name"] == name:
                    of_job[int(pod["metadata"]["labels"][COMPLETION_INDEX])] = pod
            jobs.append(ChildJob(name, replicated["name"], index, replicated["template"]["spec"], of_job))
    return jobs


def new_pod(job_set: Raw, job: ChildJob, completion: int, *, attempt: int, port: int) -> dict[str, Any]:
    """A pod of a child Job. On the one host of the testbed, `port` is where the first pod of all listens."""
    template = _on_one_host(job.spec["template"], job_set, port)
    metadata = template.get("metadata") or {}
    marks = {
        f"{PREFIX}jobset-name": job_set["metadata"]["name"],
        f"{PREFIX}replicatedjob-name": job.replicated,
        f"{PREFIX}job-index": str(job.index),
        f"{PREFIX}restart-attempt": str(attempt),
        COMPLETION_INDEX: str(completion),
    }
    names = {"job-name": job.name, "batch.kubernetes.io/job-name": job.name}
    spec = template["spec"]
    for container in spec["containers"]:
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{job.name}-{completion}-",
            "labels": {**(metadata.get("labels") or {}), **marks, **names},
            "annotations": {**(metadata.get("annotations") or {}), **marks},
            "ownerReferences": [_owner(job_set)],
        },
        "spec": {**spec, "hostname": f"{job.name}-{completion}", "subdomain": _subdomain(job_set)},
    }


def failed_create(job_set: Raw, job: ChildJob, message: str) -> dict[str, Any]:
    """The event by which the Job controller tells that the API server refuses a pod."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "metadata": {"generateName": f"{job.name}."},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job.name,
            "namespace": job_set["metadata"]["namespace"],
        },
        "type": "Warning",
        "reason": "FailedCreate",
        "message": message,
        "source": {"component": "job-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _subdomain(job_set: Raw) -> str:
    return job_set["spec"].get("network", {}).get("subdomain") or job_set["metadata"]["name"]


def _owner(job_set: Raw) -> dict[str, Any]:
    return {
        "apiVersion": job_set["apiVersion"],
        "kind": job_set["kind"],
        "name": job_set["metadata"]["name"],
        "uid": job_set["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _on_one_host(template: Mapping[str, Any], job_set: Raw, port: int) -> dict[str, Any]:
    name, replicated = job_set["metadata"]["name"], job_set["spec"]["replicatedJobs"][0]["name"]
    host = re.escape(f"{name}-{replicated}-0-0.{_subdomain(job_set)}")
    text = re.sub(rf"{host}:\d+", f"127.0.0.1:{port}", json.dumps(template))
    return json.loads(re.sub(host, "127.0.0.1", text))
