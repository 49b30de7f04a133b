"""Which nodes a pod may land on, and what it requests there."""

from collections.abc import Sequence
from typing import Any

from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.pools import Pool

_SPOT = "cloud.google.com/gke-spot"


def placement(place: KubernetesPlace, pools: Sequence[Pool]) -> dict[str, Any]:
    """Node selector or affinity, and tolerations. `pools` are equal, so what holds for one of them holds for all."""
    resource = pools[0].resource
    if resource is None:
        return _nodes([dict(pool.node_selector) for pool in pools])
    # GKE taints nodes with accelerators so that nothing else lands there.
    tolerations: list[dict[str, str]] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    selectors = [dict(pool.node_selector) for pool in pools]
    if place.spot:
        selectors = [{**selector, _SPOT: "true"} for selector in selectors]
        tolerations.append({"key": _SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    return {**_nodes(selectors), "tolerations": tolerations}


def _nodes(selectors: list[dict[str, str]]) -> dict[str, Any]:
    if all(selector == selectors[0] for selector in selectors):
        return {"nodeSelector": selectors[0]} if selectors[0] else {}
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]}
        for selector in selectors
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


# Share of a host's memory that GKE leaves to pods on machines with accelerators, which a worker has for itself.
_USABLE_MEMORY = 0.85


def threads(pool: Pool) -> int:
    """Cores that a pod requests: all that a `cpu` pool names, half of a host with accelerators, since GKE's own
    daemons and the kernel's part of input and output need some."""
    return pool.host_cpus if pool.kind == "cpu" else max(1, pool.host_cpus // 2)


def resources(pool: Pool) -> dict[str, Any]:
    """Requests and limits of the one container of a pod."""
    requests: dict[str, str] = {"cpu": str(threads(pool))}
    # A limit names the culprit: without one the kernel ends whatever it likes on a full node, or the node evicts the
    # pod as if it were disrupted. No disk is asked for: Kueue does not admit what its queues have no quota of.
    whole = pool.host_memory_gib
    memory, limit = (whole, whole) if pool.kind == "cpu" else (whole // 2, int(whole * _USABLE_MEMORY))
    chips = {} if pool.resource is None else {pool.resource: str(pool.chips_per_host)}
    return {
        "requests": {**requests, "memory": f"{memory}Gi", **chips},
        "limits": {"memory": f"{limit}Gi", **chips},
    }
