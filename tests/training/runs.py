"""Real workers that train one cell of the tiny ladder, each in a store of its own."""

import json
import os
import signal
import subprocess
import sys

import polars as pl

from marin_core.jobs.process import worker_environment
from marin_core.store import ArtifactSpec, Store
from tests.conftest import REPOSITORY, LabEnvironment

CELL = "8e9-d0056"


def start_worker(
    lab: LabEnvironment, store: Store, spec: ArtifactSpec, every_steps: int = 5, **variables: str
) -> subprocess.Popen[str]:
    options = ["--scratch", str(lab.folder / "scratch"), "--checkpoint-every-steps", str(every_steps)]
    with (lab.folder / "worker.log").open("a") as log:
        return subprocess.Popen(
            worker_command(store, spec) + options,
            cwd=REPOSITORY,
            env=worker_variables(lab) | variables,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def worker_command(store: Store, spec: ArtifactSpec, module: str = "marin_core.worker") -> list[str]:
    return [sys.executable, "-m", module, "--store", store.root, "--plan", store.save_plan(spec)]


def worker_variables(lab: LabEnvironment) -> dict[str, str]:
    cache = {"JAX_COMPILATION_CACHE_DIR": lab.variables["JAX_COMPILATION_CACHE_DIR"]}
    return lab.variables | worker_environment(1, lab.folder / "state", os.environ) | cache


def signal_at_step(worker: subprocess.Popen[str], step: int, signal_: signal.Signals) -> int:
    """Send a signal once the worker has told that so many steps are done; returns how many it told in the end."""
    assert worker.stdout
    told = 0
    for line in worker.stdout:
        event = json.loads(line)
        if event["event"] == "progress":
            told = event["progress"]["step"]
            if step <= told < step + 1:
                worker.send_signal(signal_)
    worker.wait()
    return told


def kill_at_step(worker: subprocess.Popen[str], step: int) -> None:
    signal_at_step(worker, step, signal.SIGKILL)


def finish(worker: subprocess.Popen[str]) -> list[str]:
    """The worker's log messages; it must succeed."""
    output, _ = worker.communicate(timeout=300)
    assert worker.returncode == 0, output
    events = [json.loads(line) for line in output.splitlines()]
    return [event["message"] for event in events if event["event"] == "log"]


def copied_store(lab: LabEnvironment, name: str) -> Store:
    """The same shards under another root: a store of its own for a run."""
    root = lab.folder / name
    subprocess.run(["cp", "-r", str(lab.store), str(root)], check=True)
    return Store(str(root))


def curve(store: Store, spec: ArtifactSpec) -> list[tuple[int, str, str]]:
    with store.artifact(spec).open("metrics.parquet") as file:
        table = pl.read_parquet(file)
    return [(row["step"], row["loss"].hex(), row["learning_rate"].hex()) for row in table.to_dicts()]
