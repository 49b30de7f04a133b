"""A gang, pods that train one model together, as a JobSet: it starts, restarts and ends whole."""

from collections.abc import Mapping
from typing import Any

from marin_core.jobs.pools import Pool
from marin_core.jobs.spec import EXIT_REFUSED, OUTSIDE_EXITS

# The slices. Short, because a pod's name is {jobset}-{this}-{slice}-{host}-xxxxx and ends at 63 characters.
REPLICATED_JOB = "s"
# Where process 0 listens for `jax.distributed`.
COORDINATOR_PORT = 8476
# Where the first pod listens for the transport between TPU slices.
MEGASCALE_PORT = 8080
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"


def coordinator_host(name: str) -> str:
    """The stable host name of the first pod of the JobSet `name`, in the headless service that has its name."""
    return f"{name}-{REPLICATED_JOB}-0-0.{name}"


def coordinator_address(name: str) -> str:
    """HOST:PORT of process 0."""
    return f"{coordinator_host(name)}:{COORDINATOR_PORT}"


def job_set(name: str, pool: Pool, template: Mapping[str, Any], *, max_restarts: int) -> dict[str, Any]:
    """Kind, annotations and spec of a JobSet with one Job a slice and one pod a host.

    A pod that fails takes all others with it, and the JobSet makes them again. `max_restarts` counts the worker's
    failures; a Job that fails because one of its pods was disrupted, or ended for what happened outside of it, restarts
    the set without counting.
    """
    # TPU slices are node pools of their own; the annotation gives each child Job one of them for itself.
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    spec = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": max_restarts, "rules": _RULES},
        "replicatedJobs": [
            {
                "name": REPLICATED_JOB,
                "replicas": pool.slices,
                "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": _slice(pool, template)},
            }
        ],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "annotations": exclusive if pool.kind == "tpu" else {},
        "spec": spec,
    }


def _slice(pool: Pool, template: Mapping[str, Any]) -> dict[str, Any]:
    """One Job. These kinds of failed pods end it with the reason PodFailurePolicy; the message says which it was."""
    rules = [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        # All save and end together when one of them is told to, and only that one has the condition.
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": sorted(OUTSIDE_EXITS)}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [EXIT_REFUSED]}},
    ]
    return {
        "completionMode": "Indexed",
        "completions": pool.hosts,
        "parallelism": pool.hosts,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }


# The first rule that matches any failed Job decides, and a failed Job that none matches restarts the set and counts.
# The Job controller's messages are "Pod … has condition DisruptionTarget matching FailJob rule …", and "Container … for
# pod … failed with exit code … matching FailJob rule …".
_RULES = [
    {
        "name": "disrupted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": ["has condition DisruptionTarget "],
    },
    {
        "name": "outside",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": [f"exit code ({'|'.join(str(code) for code in sorted(OUTSIDE_EXITS))}) "],
    },
    {"name": "refused", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
]


def gang_environment(name: str, pool: Pool) -> list[dict[str, Any]]:
    """Variables of a pod of the JobSet `name`: which slice it is in, and where TPU slices find each other."""
    slice_index = {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{JOB_INDEX_LABEL}']"}}}
    variables = [{"name": "MARIN_SLICE", **slice_index}]
    if pool.kind == "tpu" and pool.slices > 1:
        variables += [
            {"name": "MEGASCALE_COORDINATOR_ADDRESS", "value": coordinator_host(name)},
            {"name": "MEGASCALE_NUM_SLICES", "value": str(pool.slices)},
            {"name": "MEGASCALE_PORT", "value": str(MEGASCALE_PORT)},
            {"name": "MEGASCALE_SLICE_ID", **slice_index},
        ]
    return variables


def gang_ports(pool: Pool) -> list[dict[str, Any]]:
    """Ports that pods of a gang reach each other at."""
    ports = [{"name": "coordinator", "containerPort": COORDINATOR_PORT, "protocol": "TCP"}]
    if pool.kind == "tpu" and pool.slices > 1:
        ports.append({"name": "megascale", "containerPort": MEGASCALE_PORT, "protocol": "TCP"})
    return ports
