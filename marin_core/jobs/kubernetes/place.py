"""Which cluster, and how pods get on it: the `[place.kubernetes]` section of a profile."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class KubernetesPlace:
    """`image` runs the workers, in `namespace`, under `service_account` (its Workload Identity is what may write the
    store). `region` is where the node pools are; the bucket must be there too.

    `context` names a context of the kubeconfig; None is the pod's own service account, else the current context.
    `env` is set in every container, the same for all ranks; nothing of the submitter's environment is forwarded. The
    keys of `env_from_secret`, a Secret of the namespace, are set there too: a profile has no secrets, only their names.
    """

    namespace: str
    image: str
    region: str
    context: str | None = None
    service_account: str | None = None
    # A Kueue LocalQueue; None submits straight to the scheduler.
    queue: str | None = None
    # The PriorityClass of the pods; None is the cluster's default.
    priority_class: str | None = None
    # Whether accelerator pods run on spot nodes.
    spot: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    env_from_secret: str | None = None
    # Time between SIGTERM and SIGKILL: enough to write a checkpoint.
    termination_grace_seconds: int = 300
    # Limits of waiting and of running; None, the default, waits and runs as long as it takes.
    max_queue_hours: float | None = None
    max_run_hours: float | None = None
    # What becomes of a job whose Dagster run is cancelled or deleted.
    on_cancel: Literal["cancel", "leave"] = "cancel"
    # Where a pod's own disk is mounted, for what need not outlive it; also its HOME.
    scratch: str = "/scratch"
    # What a container runs; the worker's options follow.
    worker_command: tuple[str, ...] = ("python", "-m", "marin_core.worker")
