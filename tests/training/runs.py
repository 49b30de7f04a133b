"""Real workers that train one cell of the tiny ladder, each in a store of its own."""

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import polars as pl

from marin_core.graph import LabGraph
from marin_core.jobs.process import worker_environment
from marin_core.recipes import TrainPlan
from marin_core.store import ArtifactSpec, Store
from tests.conftest import REPOSITORY, LabEnvironment

CELL = "8e9-d0056"
# Steps by index, of 72, after which it is evaluated, and whose checkpoints are kept.
EVALUATED = [23, 47, 71]
KEPT = [40, 71]


def run_spec(graph: LabGraph) -> ArtifactSpec:
    """`CELL`, evaluated on the way, and with a checkpoint that is kept on the way."""
    return altered(graph.cells[CELL], steps_per_eval=24, steps_per_checkpoint=40)


def start_worker(
    lab: LabEnvironment,
    store: Store,
    spec: ArtifactSpec,
    every_steps: int = 5,
    module: str = "marin_core.worker",
    **variables: str,
) -> subprocess.Popen[str]:
    options = ["--scratch", str(lab.folder / "scratch"), "--checkpoint-every-steps", str(every_steps)]
    with (lab.folder / "worker.log").open("a") as log:
        return subprocess.Popen(
            worker_command(store, spec, module) + options,
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


def altered(spec: ArtifactSpec, **fields: Any) -> ArtifactSpec:
    """The run with other fields of its plan."""
    plan = TrainPlan.from_json(dict(spec.config["plan"]))
    config = {"plan": dataclasses.replace(plan, **fields).to_json()}
    return dataclasses.replace(spec, config=config)


def train_all(lab: LabEnvironment, store: Store, specs: Iterable[ArtifactSpec], devices: int = 1) -> None:
    """Train runs one after another in one worker, of which each must succeed."""
    specs = list(specs)
    requests = [{"plan": store.save_plan(spec), "options": {"scratch": str(lab.folder / "scratch")}} for spec in specs]
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    with (lab.folder / "worker.log").open("a") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "marin_core.worker", "--store", store.root, "--serve"],
            cwd=REPOSITORY,
            env=worker_variables(lab) | flags,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert worker.stdin and worker.stdout
    worker.stdin.write("".join(f"{json.dumps(request)}\n" for request in requests))
    worker.stdin.flush()
    ends = (event for event in map(json.loads, worker.stdout) if event["event"] in ("done", "failed"))
    told = list(itertools.islice(ends, len(specs)))
    worker.stdin.close()
    worker.wait()
    assert [event["event"] for event in told] == ["done"] * len(specs), told


def copied_store(lab: LabEnvironment, name: str) -> Store:
    """The same shards under another root: a store of its own for a run."""
    root = lab.folder / name
    subprocess.run(["cp", "-r", str(lab.store), str(root)], check=True)
    return Store(str(root))


def curve(store: Store, spec: ArtifactSpec) -> list[tuple[int, str, str]]:
    with store.artifact(spec).open("metrics.parquet") as file:
        table = pl.read_parquet(file)
    return [(row["step"], row["loss"].hex(), row["learning_rate"].hex()) for row in table.to_dicts()]


def evaluations(store: Store, spec: ArtifactSpec) -> list[tuple[int, str, str]]:
    with store.artifact(spec).open("evals.parquet") as file:
        table = pl.read_parquet(file)
    return [(row["step"], row["name"], row["value"].hex()) for row in table.to_dicts()]


def losses(store: Store, spec: ArtifactSpec) -> list[float]:
    with store.artifact(spec).open("metrics.parquet") as file:
        return pl.read_parquet(file)["loss"].to_list()
