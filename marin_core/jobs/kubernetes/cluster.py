"""Speaking to a Kubernetes API server in plain JSON: one connection, one kind of error for each way it can fail."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin_core.errors import MarinError
from marin_core.jobs.kubernetes.place import KubernetesPlace

# How the API server's audit log names us.
USER_AGENT = "marin-assets"

Query = Mapping[str, str | int]


@dataclass(frozen=True)
class Kind:
    """A kind of object in a namespace; `group` is the path of its API group and version."""

    group: str
    plural: str

    def path(self, namespace: str, name: str | None = None) -> str:
        path = f"/{self.group}/namespaces/{namespace}/{self.plural}"
        return f"{path}/{name}" if name else path


PODS = Kind("api/v1", "pods")
EVENTS = Kind("api/v1", "events")
JOBS = Kind("apis/batch/v1", "jobs")
JOBSETS = Kind("apis/jobset.x-k8s.io/v1alpha2", "jobsets")
# Kueue's admission of a job.
WORKLOADS = Kind("apis/kueue.x-k8s.io/v1beta1", "workloads")


def kind_of(body: Mapping[str, Any]) -> Kind:
    """Job or JobSet, from the object itself."""
    return JOBSETS if body["kind"] == "JobSet" else JOBS


class ApiError(MarinError):
    """The API server refused a request. `status` is HTTP's; `said` the server's own words, in one line."""

    def __init__(self, status: int, said: str):
        super().__init__(said)
        self.status, self.said = status, said


class Unreachable(MarinError):
    """The API server did not answer."""


class Cluster:
    """The API server that a profile names. Safe to use from many threads."""

    def __init__(self, place: KubernetesPlace):
        """Raises MarinError if there is no such context, or no kubeconfig at all."""
        from kubernetes import client

        configuration = _configuration(place)
        # urllib3's own retries hide for how long a server has been away.
        configuration.retries = False
        configuration.connection_pool_maxsize = 32
        self._api = client.ApiClient(configuration)
        self._api.user_agent = USER_AGENT
        context = f"context {place.context!r}" if place.context else "the current context"
        self.label = f"the API server of {context} ({configuration.host})"

    def request(
        self, method: str, path: str, query: Query | None = None, body: Any = None, timeout: float = 30
    ) -> dict[str, Any]:
        """One request and its JSON answer.

        Raises:
            ApiError: the server refused it.
            Unreachable: no answer within `timeout` seconds.
        """
        import urllib3

        response = self._call(method, path, query, body, timeout)
        try:
            return json.loads(response.data)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"{self.label} broke off its answer: {_words(error)}") from None
        finally:
            response.release_conn()

    def open(self, path: str, query: Query, read_timeout: float) -> "Stream":
        """A long answer, line by line. Raises as `request` does."""
        return Stream(self, self._call("GET", path, query, None, (10, read_timeout)))

    def _call(self, method: str, path: str, query: Query | None, body: Any, timeout: Any) -> Any:
        import urllib3
        from kubernetes.client.exceptions import ApiException

        try:
            return self._api.call_api(
                path,
                method,
                query_params=[(name, str(value)) for name, value in (query or {}).items()],
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=timeout,
            )
        except ApiException as error:
            if not error.status:
                raise Unreachable(f"{self.label} does not answer: {' '.join(str(error.reason).split())}") from None
            raise ApiError(error.status, _said(error.body) or str(error.reason)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"{self.label} does not answer: {_words(error)}") from None


class Stream:
    """Lines of a response as they come."""

    def __init__(self, cluster: Cluster, response: Any):
        self._cluster, self._response = cluster, response

    def __iter__(self) -> Iterator[bytes]:
        """Complete lines without their ends; a last line that has no end is `rest`.

        Raises:
            Unreachable: the connection broke, or was silent for longer than its read timeout.
        """
        import urllib3

        self.rest = b""
        try:
            for chunk in self._response.stream(amt=2**16):
                *lines, self.rest = (self.rest + chunk).split(b"\n")
                yield from lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # The last two are what urllib3 raises when `close` took the socket away meanwhile.
            raise Unreachable(f"{self._cluster.label} broke off its answer: {_words(error)}") from None

    def close(self) -> None:
        """End it; a thread that waits for its next line sees the connection break."""
        import socket

        with contextlib.suppress(Exception):
            self._response.connection.sock.shutdown(socket.SHUT_RDWR)
        self._response.close()


def _configuration(place: KubernetesPlace) -> Any:
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        if place.context is None and "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            # The client reads KUBECONFIG only once, as it is imported.
            config.load_kube_config(os.environ.get("KUBECONFIG"), place.context, configuration)
    except (config.ConfigException, OSError) as error:
        wanted = f"context {place.context!r}" if place.context else "a current context"
        raise MarinError(
            f"no way to the cluster: {_words(error)}; expected {wanted} in the kubeconfig: see `kubectl config "
            "get-contexts`, or set KUBECONFIG"
        ) from None
    return configuration


def _said(body: bytes | str | None) -> str:
    """The message of a `Status` object, in one line."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["message"]
    return " ".join(text.split())[:1000]


def _words(error: Exception) -> str:
    """An error of the network without the addresses of Python objects that urllib3 puts in it."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"<[^>]* object at 0x[0-9a-f]+>:? ?|\w+\(host=[^)]*\): ?", "", text)[:300]
