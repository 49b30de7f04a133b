"""A job's object on the cluster: making it, finding it, deleting it, and what a refusal of these means."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from marin_core.errors import MarinError
from marin_core.jobs.kubernetes.cluster import JOBSETS, ApiError, Cluster, Kind, kind_of
from marin_core.jobs.kubernetes.manifests import DAGSTER_RUN, STORE
from marin_core.jobs.kubernetes.sight import created, holds
from marin_core.jobs.kubernetes.times import in_words, utc

# `kubectl delete` waits for as long by default as it takes; this is for who waits at a terminal.
_GONE_SECONDS = 30.0


def find(cluster: Cluster, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
    """The object, None if there is none.

    Raises:
        ApiError, Unreachable: nobody knows.
    """
    try:
        found = cluster.request("GET", kind.path(namespace, name))
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return {"kind": "JobSet" if kind is JOBSETS else "Job", **found}


def create(cluster: Cluster, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ApiError (409 if the name is taken), Unreachable."""
    return {"kind": body["kind"], **cluster.request("POST", kind_of(body).path(namespace), body=body)}


def delete(
    cluster: Cluster, kind: Kind, namespace: str, name: str, *, uid: str | None = None, seconds: float = _GONE_SECONDS
) -> bool:
    """Delete the object and its pods; wait until it is gone. A Job's pods end in the background.

    A JobSet is gone only after its Jobs and their pods: its controller finds Jobs by their owner's name, and would take
    those that an earlier JobSet of that name left for failures of a new one. With `uid`, only the very object that was
    judged, and not one that somebody made of that name meanwhile. Returns whether it is gone; False if finalizers hold
    it for longer than `seconds`, or if the name is another object's now.

    Raises:
        ApiError, Unreachable: it could not be deleted.
    """
    options: dict[str, Any] = {"propagationPolicy": "Foreground" if kind is JOBSETS else "Background"}
    if uid:
        options["preconditions"] = {"uid": uid}
    try:
        answer = cluster.request("DELETE", kind.path(namespace, name), body=options)
    except ApiError as error:
        if error.status in (404, 409):
            return error.status == 404
        raise
    if answer.get("kind") == "Status":
        return True
    deadline = time.monotonic() + seconds
    while (found := find(cluster, kind, namespace, name)) and (not uid or found["metadata"]["uid"] == uid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def is_over(found: Mapping[str, Any]) -> bool:
    """Whether the cluster does no more with it."""
    return any(holds(found, kind) for kind in ("Complete", "Completed", "Failed"))


def dagster_run(found: Mapping[str, Any]) -> str | None:
    """The Dagster run that made the object, None if it was none."""
    return (found["metadata"].get("annotations") or {}).get(DAGSTER_RUN)


def store_of(found: Mapping[str, Any]) -> str | None:
    """Root of the store that it builds for. A job's name does not tell: it is that of its artifact's fingerprint."""
    return (found["metadata"].get("annotations") or {}).get(STORE)


def who_started(found: Mapping[str, Any], now: Callable[[], float] = time.time) -> str:
    """For whoever attaches: which Dagster run made the object, and how long ago."""
    run = dagster_run(found)
    age = utc(now()) - created(found)
    return f"{f'Dagster run {run}' if run else 'somebody'} started {in_words(max(age, timedelta()))} ago"


def is_passing(error: MarinError) -> bool:
    """Whether the same request may be granted later without anybody changing anything."""
    if not isinstance(error, ApiError):
        return True
    return error.status == 429 or error.status >= 500 or (error.status == 403 and "exceeded quota" in error.said)


def remedy(error: ApiError, kind: Kind, namespace: str) -> str:
    """A refusal to create an object, in one line with what to do about it."""
    said = error.said
    if error.status == 403 and "exceeded quota" in said:
        return f"the namespace's ResourceQuota is full: {said}"
    if "admission webhook" in said:
        return f"refused by the cluster's admission rules: {said}"
    if error.status in (401, 403):
        return (
            f"may not create {kind.plural} in namespace {namespace}: {said}; grant create, get, list, watch and delete "
            f"on {kind.plural} in the Role of whoever submits"
        )
    if error.status == 404 and "namespaces" in said:
        return f"there is no namespace {namespace!r} on the cluster: create it, or correct the profile's `namespace`"
    if error.status == 404:
        install = "install JobSet (jobset.sigs.k8s.io)" if kind is JOBSETS else "is this a Kubernetes API server?"
        return f"the cluster has no {kind.plural} of {kind.group.removeprefix('apis/')}: {install}"
    if error.status in (400, 422):
        return f"the API server does not accept the manifest: {said}"
    return f"the API server refused the job (HTTP {error.status}): {said}"
