"""Completion indexes for the Jobs of a cluster whose Job controller gives none: a webhook that sees each pod first.

The index is the lowest that no pod of the Job has or had with success, as the documentation of Indexed Jobs says; a pod
gets it as label, annotation, JOB_COMPLETION_INDEX, host name and part of its name.
"""

import base64
import json
import random
import ssl
import string
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kubernetes import client, config

from tests.jobs.kubernetes.jobset_pods import COMPLETION_INDEX
from tests.jobs.kubernetes.jobset_rules import Raw

# For so long a pod that was let through may not be in the API server's answers yet.
_SETTLING_SECONDS = 2


@contextmanager
def indexing(admin: Path, controller: Path, pki: Path) -> Iterator[None]:
    """Give indexes to pods of Jobs that carry the label `marin/job`. `pki` has the server's certificate."""
    indexes = _Indexes(config.new_client_from_config(str(controller)))

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(_answer(review, indexes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        _register(config.new_client_from_config(str(admin)), server.server_address[1], pki / "ca.crt")
        yield
    finally:
        server.shutdown()
        server.server_close()


def _register(api: Any, port: int, authority: Path) -> None:
    expressions = [
        {"key": "marin/job", "operator": "Exists"},
        {"key": "job-name", "operator": "Exists"},
        {"key": COMPLETION_INDEX, "operator": "DoesNotExist"},
    ]
    webhook = {
        "name": "indexes.jobs.test",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(authority.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "objectSelector": {"matchExpressions": expressions},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    client.AdmissionregistrationV1Api(api).create_mutating_webhook_configuration(
        {"metadata": {"name": "indexed-jobs"}, "webhooks": [webhook]}
    )


class _Indexes:
    def __init__(self, api: Any):
        self._core: Any = client.CoreV1Api(api)
        self._batch: Any = client.BatchV1Api(api)
        self._given: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()

    def next(self, namespace: str, job: str) -> int:
        """The lowest index that is free in a Job; one that was given a moment ago only if all others are taken."""
        with self._lock:
            completions = self._batch.read_namespaced_job(job, namespace).spec.completions
            pods = self._core.list_namespaced_pod(namespace, label_selector=f"job-name={job}").items
            taken = {
                int(pod.metadata.labels[COMPLETION_INDEX])
                for pod in pods
                if pod.status.phase != "Failed" and not pod.metadata.deletion_timestamp
            }
            free = [index for index in range(completions) if index not in taken]
            index = min(free, key=lambda index: (self._is_fresh(f"{namespace}/{job}", index), index))
            self._given[f"{namespace}/{job}", index] = time.monotonic()
            return index

    def _is_fresh(self, job: str, index: int) -> bool:
        return time.monotonic() - self._given.get((job, index), -_SETTLING_SECONDS) < _SETTLING_SECONDS


def _answer(review: Raw, indexes: _Indexes) -> dict[str, Any]:
    request = review["request"]
    pod = request["object"]
    patch = _patch(pod, indexes.next(request["namespace"], pod["metadata"]["labels"]["job-name"]))
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def _patch(pod: Raw, index: int) -> list[dict[str, Any]]:
    metadata, job = pod["metadata"], pod["metadata"]["labels"]["job-name"]
    mark = {COMPLETION_INDEX: str(index)}
    suffix = "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
    values = {
        "/metadata/name": f"{job}-{index}-{suffix}",
        "/metadata/labels": {**metadata["labels"], **mark},
        "/metadata/annotations": {**(metadata.get("annotations") or {}), **mark},
        "/spec/hostname": f"{job}-{index}",
    }
    for number, container in enumerate(pod["spec"]["containers"]):
        values[f"/spec/containers/{number}/env"] = [*container.get("env", ()), variable]
    return [{"op": "add", "path": path, "value": value} for path, value in values.items()]
