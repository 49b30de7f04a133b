"""A real Kubernetes API server with its controllers, booted for tests from the scripts that MARIN_TESTBED names."""

import os
import random
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# `up.sh` uses this many consecutive ports.
_PORTS = 15
# Above those of the machine's services, below those that Linux gives to outgoing connections.
_PORT_RANGE = (20000, 32000)
# Nothing of the control plane is worth the seconds of an orderly end.
_TAKE_DOWN = """
read -r _
cat "$1"/{sched,kcm,apiserver,etcd}.pid 2>/dev/null | xargs -r kill -KILL 2>/dev/null
exec bash "$0/down.sh" "$1"
"""
_PROGRAMS = {"kube-apiserver": "", "kube-controller-manager": "--port=0", "kube-scheduler": "--port=0"}


@dataclass(frozen=True)
class Cluster:
    """Three nodes whose pods are local processes: `tpu-0` (v5e 2x2), `gpu-0` (8 H100), `cpu-0`.

    `api` is a client of an administrator. The kubeconfig's context is named `testbed`.
    """

    folder: Path
    api: Any = field(repr=False)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """JSON lines, one a request of anybody but the control plane itself."""
        return self.folder / "logs" / "audit.jsonl"

    @property
    def variables(self) -> dict[str, str]:
        """Environment of processes that are to find this cluster."""
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def core(self) -> Any:
        from kubernetes import client

        return client.CoreV1Api(self.api)

    @property
    def batch(self) -> Any:
        from kubernetes import client

        return client.BatchV1Api(self.api)

    @property
    def custom(self) -> Any:
        from kubernetes import client

        return client.CustomObjectsApi(self.api)

    def namespace(self, prefix: str = "test") -> str:
        """The name of a new namespace, with its default service account in place."""
        name = self.core.create_namespace({"metadata": {"generateName": f"{prefix}-"}}).metadata.name
        self.await_service_account(name)
        return name

    def await_service_account(self, namespace: str, seconds: float = 30) -> None:
        """Without it, and without the token that Kubernetes 1.20 adds to it, no pod is accepted in the namespace."""
        accounts = self.core.list_namespaced_service_account
        deadline = time.monotonic() + seconds
        while not any(a.secrets for a in accounts(namespace, field_selector="metadata.name=default").items):
            assert time.monotonic() < deadline, f"no service account with a token in {namespace} after {seconds:.0f} s"
            time.sleep(0.05)

    def resize(self, cpus: int, node: str = "cpu-0") -> None:
        """Let pods on `node` request this many cores in all."""
        size = {"cpu": str(cpus)}
        self.core.patch_node_status(node, {"status": {"capacity": size, "allocatable": size}})


@contextmanager
def boot(scripts: Path, folder: Path, cpus: int) -> Iterator[Cluster]:
    """Boot the testbed into `folder` and add JobSets and Indexed Jobs to it; take it down whatever happens."""
    from kubernetes import config

    from tests.jobs.kubernetes.indexed_jobs import indexing
    from tests.jobs.kubernetes.jobset_controller import running

    with ExitStack() as stack:
        guard = subprocess.Popen(
            # Its input ends when this process does, by whatever signal; a Ctrl-C is not for it.
            ["bash", "-c", _TAKE_DOWN, str(scripts), str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        stack.callback(_end, guard)
        binaries = _binaries(scripts, folder.parent / "bin")
        environment = {**os.environ, "PY": sys.executable, "PORT": str(_free_ports()), "KBIN": str(binaries)}
        up = subprocess.run(
            ["bash", str(scripts / "up.sh"), str(folder)], env=environment, capture_output=True, text=True, check=False
        )
        assert up.returncode == 0, f"the testbed did not boot:\n{up.stdout}{up.stderr}"
        cluster = Cluster(folder, config.new_client_from_config(str(folder / "kubeconfig")))
        # On a busy machine the controllers start long after the API server.
        cluster.await_service_account("default", seconds=120)
        cluster.resize(cpus)
        # The audit log is to show what the tested code asks of the API server, so these are not administrators.
        controller = folder / "kcm.kubeconfig"
        stack.enter_context(running(cluster.kubeconfig, controller))
        stack.enter_context(indexing(cluster.kubeconfig, controller, folder / "pki"))
        yield cluster


def until(check: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until `check` is true."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not so within {seconds:g} s: {check}"
        time.sleep(0.1)


def _end(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin
    guard.stdin.close()
    guard.wait(timeout=60)


def _binaries(scripts: Path, folder: Path) -> Path:
    """A folder of the control plane's programs as `up.sh` wants it, for a cluster that is not alone on its machine.

    These releases of the controller manager and the scheduler also listen on a fixed port unless told `--port=0`.
    """
    cache = Path(os.environ.get("KBIN", "/var/cache/marin-testbed"))
    if not (cache / "kube-scheduler").exists():
        _unpack(next(scripts.glob("kube-*.tar.zst")), cache)
    folder.mkdir()
    for name, options in _PROGRAMS.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{cache / name}" {options} "$@"\n')
        program.chmod(0o755)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    import zstandard

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
        with zstandard.open(archive, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(unpacked, filter="data")
        # Another session may have been faster; both made the same.
        with suppress(OSError):
            Path(unpacked).rename(folder)
            Path(unpacked).mkdir()


def _free_ports() -> int:
    for _ in range(100):
        first = random.randrange(*_PORT_RANGE)
        with suppress(OSError), ExitStack() as stack:
            for port in range(first, first + _PORTS):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError(f"no {_PORTS} consecutive free ports in {_PORT_RANGE}")
