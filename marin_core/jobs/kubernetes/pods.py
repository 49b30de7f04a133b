"""The pod of a worker: its container, environment, volumes and rights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_core.jobs.kubernetes.jobset import gang_environment, gang_ports
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.placement import placement, resources, threads
from marin_core.jobs.kubernetes.sight import JOB_LABEL
from marin_core.jobs.pools import Pool
from marin_core.jobs.process import worker_environment

# Any user but root; the image need not know it.
_USER = 10_001
_PLATFORMS = {"cpu": "cpu", "tpu": "tpu,cpu", "gpu": "cuda,cpu"}


def pod_template(
    place: KubernetesPlace, pools: Sequence[Pool], arguments: Sequence[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """One worker a pod. `pools` are equal; the pod may land on any of them."""
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": place.termination_grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(place, pools[0], [*arguments, "--scratch", place.scratch], labels[JOB_LABEL])],
        # The root file system is read-only.
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
        **placement(place, pools),
    }
    if place.service_account is not None:
        spec["serviceAccountName"] = place.service_account
    if place.priority_class is not None:
        spec["priorityClassName"] = place.priority_class
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def _container(place: KubernetesPlace, pool: Pool, arguments: Sequence[str], job_name: str) -> dict[str, Any]:
    gang = pool.processes > 1
    return {
        "name": "worker",
        "image": place.image,
        "command": list(place.worker_command),
        "args": list(arguments),
        "workingDir": place.scratch,
        "env": [*(gang_environment(job_name, pool) if gang else []), *_environment(place, pool)],
        **({"envFrom": [{"secretRef": {"name": place.env_from_secret}}]} if place.env_from_secret else {}),
        **({"ports": gang_ports(pool)} if gang else {}),
        "resources": resources(pool),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "scratch", "mountPath": place.scratch},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


def _environment(place: KubernetesPlace, pool: Pool) -> list[dict[str, Any]]:
    """The same for all pods of a job but for the pod's name; `place.env` has the last word."""
    state = Path(place.scratch) / "state"
    variables = worker_environment(threads(pool), state)
    if pool.kind != "cpu":
        # Both tune what XLA does on CPUs only.
        del variables["XLA_FLAGS"], variables["GLIBC_TUNABLES"]
    variables |= {
        "JAX_PLATFORMS": _PLATFORMS[pool.kind],
        "HOME": place.scratch,
        "MARIN_STATE": str(state),
        "PYTHONUNBUFFERED": "1",
        **place.env,
    }
    return [
        {"name": "MARIN_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *({"name": name, "value": str(value)} for name, value in sorted(variables.items())),
    ]
