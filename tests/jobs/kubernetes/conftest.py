"""The cluster of these tests: booted once a session, skipped where its binaries are absent."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.kubernetes.testbed import Cluster, boot

# Few enough that worker processes do not fight for the machine; a test may `resize`.
_CPUS = 4


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kubernetes cluster with the JobSet API. Tests work in a `cluster.namespace()` of their own."""
    scripts = os.environ.get("MARIN_TESTBED")
    if not scripts or not (Path(scripts) / "up.sh").is_file():
        pytest.skip("no Kubernetes: set MARIN_TESTBED to the folder of the testbed's up.sh")
    with boot(Path(scripts), tmp_path_factory.mktemp("cluster") / "testbed", _CPUS) as running:
        yield running
