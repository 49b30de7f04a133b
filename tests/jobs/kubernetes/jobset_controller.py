"""A small JobSet controller for a cluster that has none: creates and restarts the pods of JobSets as documented.

It makes the pods of the child Jobs by itself, because the Job controller of that cluster knows no Indexed Jobs. All
pods share one host there and no pod's name resolves: the address of a JobSet's first pod becomes one on this machine.
"""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config, watch
from kubernetes.client import ApiException

from tests.jobs.kubernetes import jobset_status as status
from tests.jobs.kubernetes.jobset_pods import PREFIX, child_jobs, failed_create, new_pod
from tests.jobs.kubernetes.jobset_rules import ChildJob, Raw

_GROUP = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "plural": "jobsets"}
_PODS = {"label_selector": f"{PREFIX}jobset-name"}
_CRD = Path(__file__).with_name("jobset_crd.yaml")
# Whoever the controller's kubeconfig is for.
_USER = "system:kube-controller-manager"


@contextmanager
def running(admin: Path, controller: Path) -> Iterator[None]:
    """Install the JobSet API and run its controller. Both arguments are kubeconfigs; the second is the controller's."""
    install(config.new_client_from_config(str(admin)))
    process = JobSetController(config.new_client_from_config(str(controller)))
    process.start()
    try:
        yield
    finally:
        process.stop()


def install(api: Any) -> None:
    """Add the JobSet API to the cluster and let the controller use it."""
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _USER}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    client.RbacAuthorizationV1Api(api).create_cluster_role_binding(
        {"metadata": {"name": "jobset-controller"}, "roleRef": role, "subjects": [subject]}
    )
    crds: Any = client.ApiextensionsV1Api(api)
    crds.create_custom_resource_definition(yaml.safe_load(_CRD.read_text()))
    served: Any = watch.Watch()
    for event in served.stream(crds.list_custom_resource_definition, timeout_seconds=60):
        conditions = event["raw_object"].get("status", {}).get("conditions") or ()
        if any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions):
            served.stop()


class JobSetController:
    """Looks at all JobSets and their pods, in a thread of its own, whenever one of them has changed."""

    def __init__(self, api: Any):
        self._core: Any = client.CoreV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)
        # Pods that were made, by the JobSet's uid and attempt: one of them that is gone has failed.
        self._made: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._ports: dict[tuple[str, int], int] = {}
        self._told: set[tuple[str, str]] = set()
        self._changed, self._stopping = threading.Event(), threading.Event()
        self._loop = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        for listing, arguments in (
            (self._custom.list_cluster_custom_object, _GROUP),
            (self._core.list_pod_for_all_namespaces, _PODS),
        ):
            threading.Thread(target=self._watch, args=(listing, arguments), daemon=True).start()
        self._loop.start()

    def stop(self) -> None:
        """The watches end with the API server."""
        self._stopping.set()
        self._changed.set()
        self._loop.join(timeout=10)

    def _watch(self, listing: Any, arguments: dict[str, str]) -> None:
        while not self._stopping.is_set():
            with suppress(Exception):
                for _ in watch.Watch().stream(listing, **arguments, timeout_seconds=300):
                    self._changed.set()
            self._stopping.wait(0.5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(5)
            self._changed.clear()
            # The API server may be away; and what somebody else changed meanwhile, the watch tells.
            with suppress(Exception):
                pods = self._core.list_pod_for_all_namespaces(**_PODS, _preload_content=False)
                by_owner = _by_owner(json.loads(pods.data)["items"])
                for job_set in self._custom.list_cluster_custom_object(**_GROUP)["items"]:
                    with suppress(ApiException):
                        self._reconcile(job_set, by_owner.get(job_set["metadata"]["uid"], []))

    def _reconcile(self, job_set: Raw, pods: Sequence[Raw]) -> None:
        if job_set["metadata"].get("deletionTimestamp"):
            return
        attempt = (job_set.get("status") or {}).get("restarts", 0)
        current = [pod for pod in pods if int(pod["metadata"]["labels"][f"{PREFIX}restart-attempt"]) == attempt]
        if status.is_over(job_set):
            self._delete([pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")])
        elif job_set["spec"].get("suspend"):
            self._delete(pods)
            self._made.pop((job_set["metadata"]["uid"], attempt), None)
            self._report(job_set, status.suspended(job_set))
        elif len(current) < len(pods):
            self._delete([pod for pod in pods if pod not in current])
        else:
            self._advance(job_set, attempt, current)

    def _advance(self, job_set: Raw, attempt: int, pods: Sequence[Raw]) -> None:
        made = self._made.setdefault((job_set["metadata"]["uid"], attempt), set())
        jobs = child_jobs(job_set, pods, made)
        failed = [job for job in jobs if job.failure]
        if not failed and not all(job.succeeded for job in jobs):
            for job in jobs:
                for completion in range(job.completions):
                    if completion not in job.pods and self._create(job_set, job, completion, attempt):
                        made.add((job.name, completion))
        self._report(job_set, status.advanced(job_set, jobs, failed))

    def _create(self, job_set: Raw, job: ChildJob, completion: int, attempt: int) -> bool:
        port = self._ports.setdefault((job_set["metadata"]["uid"], attempt), _free_port())
        body = new_pod(job_set, job, completion, attempt=attempt, port=port)
        namespace = job_set["metadata"]["namespace"]
        try:
            self._core.create_namespaced_pod(namespace, body)
        except ApiException as refusal:
            message = f"Error creating: {json.loads(refusal.body or '{}').get('message')}"
            if (job.name, message) not in self._told:
                self._told.add((job.name, message))
                self._core.create_namespaced_event(namespace, failed_create(job_set, job, message))
            return False
        return True

    def _delete(self, pods: Sequence[Raw]) -> None:
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                with suppress(ApiException):
                    self._core.delete_namespaced_pod(pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _report(self, job_set: Raw, wanted: Raw) -> None:
        if any((job_set.get("status") or {}).get(key) != value for key, value in wanted.items()):
            name, namespace = job_set["metadata"]["name"], job_set["metadata"]["namespace"]
            body = {"metadata": {"resourceVersion": job_set["metadata"]["resourceVersion"]}, "status": wanted}
            self._custom.patch_namespaced_custom_object_status(**_GROUP, namespace=namespace, name=name, body=body)


def _by_owner(pods: Sequence[Raw]) -> dict[str, list[Raw]]:
    owned: dict[str, list[Raw]] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            owned.setdefault(owner["uid"], []).append(pod)
    return owned


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
