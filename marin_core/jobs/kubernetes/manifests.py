"""A job as the one object that is created on the cluster: an Indexed Job, or a JobSet where pods train together.

The cluster's own limits of retries agree with the job's budgets where the cluster can tell a disruption from a failure.
"""

from collections.abc import Mapping
from typing import Any

from marin_core.build import BuildOptions
from marin_core.errors import MarinError
from marin_core.jobs.kubernetes.jobset import job_set
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.pods import pod_template
from marin_core.jobs.kubernetes.sight import FAILURES, JOB_LABEL, MANAGED_BY, MANAGER, PREEMPTIONS
from marin_core.jobs.kubernetes.worker_arguments import worker_arguments
from marin_core.jobs.pools import Pool, check_equal
from marin_core.jobs.spec import EXIT_REFUSED, OUTSIDE_EXITS, JobSpec

FINGERPRINT_LABEL = "marin/fingerprint"
ARTIFACT = "marin/artifact"
DAGSTER_RUN = "marin/dagster-run"
STORE = "marin/store"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

# Whoever follows a job deletes it at its end. When nobody does, the cluster does a day later.
TTL_SECONDS = 86_400


def manifest(
    job: JobSpec,
    place: KubernetesPlace,
    *,
    store: str,
    plan: str,
    options: BuildOptions,
    preemptions: int = 0,
    failures: int = 0,
) -> dict[str, Any]:
    """The Job (`batch/v1`) or JobSet (`jobset.x-k8s.io/v1alpha2`, of JobSet 0.10 or later) that builds the artifact.

    `store` is the store's root, `plan` the path of the saved plan in it. `preemptions` and `failures` happened to
    earlier objects of this job; the budgets are what is left. The same arguments give the same object.

    Raises:
        MarinError: unknown or unequal pools, or pools that this job cannot run on.
    """
    pools = check_equal(job.pools)
    pool = _checked(job, place, pools)
    failures_left = max(0, job.max_failures - failures)
    template = pod_template(place, pools, worker_arguments(job, pools, store, plan, options), labels(job))
    suspend = {} if place.queue is None else {"suspend": True}
    if pool.processes > 1:
        body = job_set(job.name, pool, template, max_restarts=failures_left)
    else:
        body = _indexed_job(template, ranks=job.ranks, backoff_limit=failures_left)
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {
            "name": job.name,
            "namespace": place.namespace,
            "labels": labels(job) | ({} if place.queue is None else {QUEUE_LABEL: place.queue}),
            "annotations": {
                **body["annotations"],
                **_annotations(job, store, options),
                PREEMPTIONS: str(preemptions),
                FAILURES: str(failures),
            },
        },
        "spec": {**body["spec"], **suspend, "ttlSecondsAfterFinished": TTL_SECONDS},
    }


def labels(job: JobSpec) -> dict[str, str]:
    """On every object and pod of a job."""
    return {MANAGED_BY: MANAGER, JOB_LABEL: job.name, FINGERPRINT_LABEL: job.artifact.fingerprint}


def _annotations(job: JobSpec, store: str, options: BuildOptions) -> dict[str, str]:
    run = {} if options.dagster_run is None else {DAGSTER_RUN: options.dagster_run}
    return {ARTIFACT: job.artifact.label, STORE: store, **run}


def _checked(job: JobSpec, place: KubernetesPlace, pools: tuple[Pool, ...]) -> Pool:
    pool = pools[0]
    if job.ranks > 1 and pool.processes > 1:
        raise MarinError(
            f"{job.artifact.label} is shared by {job.ranks} ranks, each on one host, but pool {pool.name} has "
            f"{pool.processes}; give it a pool of one host"
        )
    # Only a TPU slice is placed whole by itself; elsewhere pods of one gang could land on unequal hardware.
    whole = pool.processes == 1 or (pool.kind == "tpu" and pool.slices == 1) or place.queue is not None
    if len(pools) > 1 and not whole:
        raise MarinError(
            f"{job.artifact.label} may run on {', '.join(job.pools)}, and nothing keeps its {pool.processes} pods on "
            "one of them; name a Kueue queue in [place.kubernetes], or give one pool"
        )
    return pool


def _indexed_job(template: Mapping[str, Any], *, ranks: int, backoff_limit: int) -> dict[str, Any]:
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": sorted(OUTSIDE_EXITS)}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [EXIT_REFUSED]}},
    ]
    spec = {
        "completionMode": "Indexed",
        "completions": ranks,
        "parallelism": ranks,
        "backoffLimit": backoff_limit,
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "annotations": {}, "spec": spec}
