"""A lab whose store is a bucket, through the command that a person types: what it commits is what a disk gets."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin_core.store import Store
from tests.conftest import REPOSITORY, LabEnvironment
from tests.emulator import GcsEmulator

pytestmark = pytest.mark.slow
CELL = "8e9-d0056"


@dataclass(frozen=True)
class BucketLab(LabEnvironment):
    """A lab with its store at `root` in a bucket."""

    root: str = ""
    clients: Mapping[str, str] | None = None

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, **(self.clients or {}), "MARIN_STORE": self.root}


@pytest.fixture
def bucket_lab(lab_environment: LabEnvironment, gcs_emulator: GcsEmulator, gcs_root: str) -> BucketLab:
    profile = lab_environment.folder / "tiny.toml"
    often = "checkpoint_every_steps = 5\ncheckpoint_every_seconds ="
    profile.write_text(lab_environment.profile.read_text().replace("checkpoint_every_seconds =", often))
    return BucketLab(lab_environment.folder, profile, gcs_root, gcs_emulator.variables)


def test_a_run_killed_on_a_bucket_is_the_run_of_a_disk(bucket_lab: BucketLab, finished_lab: LabEnvironment) -> None:
    result = bucket_lab.materialize("*mixture/tiny")
    assert result.returncode == 0, result.stdout + result.stderr
    command = ["dagster", "asset", "materialize", "--select", "checkpoints/delphi", "--partition", CELL]
    store, log = Store(bucket_lab.root), bucket_lab.folder / "cell.log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, cwd=REPOSITORY, env=bucket_lab.variables, stdout=output, stderr=output) as run,
    ):
        wait_for_checkpoints(store, 2, run)
        os.kill(worker_of(bucket_lab.root), signal.SIGKILL)
        assert run.wait(300) == 0, log.read_text()
    assert f"resuming checkpoints/delphi [{CELL}] after step" in log.read_text()
    here, there = contents(store), contents(Store(str(finished_lab.store)))
    assert f"checkpoints/delphi {CELL}" in here
    assert here == {name: there[name] for name in here}


def contents(store: Store) -> dict[str, str]:
    """Content digest of every committed artifact, by name and partition, without what was told of runs."""
    records = store.everything(without=["records/"])
    return {f"{record.name} {record.partition or ''}".strip(): record.content for record in records}


def wait_for_checkpoints(store: Store, number: int, run: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while sum(path.endswith("/metadata.json") for path, _ in store.objects.list("checkpoints/")) < number:
        assert run.poll() is None, "the run ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def worker_of(root: str) -> int:
    """PID of the only worker of a store."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "marin_core.worker" in arguments and root in arguments:
            found.append(int(process.name))
    (pid,) = found
    return pid
