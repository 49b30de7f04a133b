"""Two processes that train one model: the same losses as one, whatever becomes of either."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marin_core.graph import LabGraph
from marin_core.jobs.messages import MessageReader
from marin_core.jobs.spec import EXIT_PEERS_MISSING, EXIT_REFUSED, EXIT_TERMINATED
from marin_core.store import ArtifactSpec, Store
from tests.conftest import REPOSITORY, LabEnvironment
from tests.training.runs import (
    EVALUATED,
    copied_store,
    evaluations,
    run_spec,
    start_worker,
    worker_command,
    worker_variables,
)

pytestmark = pytest.mark.slow
# Sums of a batch in two halves differ in the last bits; 2e-6 was measured over these 72 steps.
TOLERANCE = 1e-5
# What all of it may take when something is wrong: JAX notices a lost process after 60 s.
PATIENCE = 300


class TwoProcesses:
    """A gang of two on this machine. Its pods have new names in each attempt. The second is killed where the evaluation
    of the checkpoint `killed_after` would begin."""

    def __init__(
        self, lab: LabEnvironment, store: Store, spec: ArtifactSpec, attempt: int, *options: str, killed_after: str = ""
    ):
        coordinator = f"127.0.0.1:{free_port()}"
        gang = ["--job", "gang", "--processes", "2", "--coordinator", coordinator, *options]
        command = worker_command(store, spec, "tests.training.gang_worker")
        self.log = lab.folder / f"gang-{attempt}.log"
        self.processes = []
        for index in range(2):
            pod = {"JOB_COMPLETION_INDEX": str(index), "MARIN_POD": f"pod-{index}-{attempt}"}
            if index == 1 and killed_after:
                pod["KILLED_AFTER"] = killed_after
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    [*command, *gang, "--scratch", str(lab.folder / f"scratch-{index}")],
                    cwd=REPOSITORY,
                    env=worker_variables(lab) | pod,
                    stdout=log,
                    stderr=log,
                )
            self.processes.append(process)

    def end(self) -> list[int]:
        return [process.wait(timeout=PATIENCE) for process in self.processes]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def await_rows(store: Store, spec: ArtifactSpec, rows: int) -> None:
    log = Path(store.url(spec)) / "metrics.jsonl"
    deadline = time.monotonic() + PATIENCE
    while not log.exists() or len(log.read_text().splitlines()) < rows:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def table(store: Store, spec: ArtifactSpec) -> pl.DataFrame:
    with store.artifact(spec).open("metrics.parquet") as file:
        return pl.read_parquet(file)


def worst(a: "list[float]", b: "list[float]") -> float:
    """Largest difference, relative."""
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


def progress_of(store: Store, pod: str) -> Any:
    return MessageReader(store.objects, "gang", pod).read().progress


def test_a_gang_that_is_preempted_and_loses_a_process_ends_where_one_process_ends(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = copied_store(lab, "gang")

    # SIGTERM reaches one of them; both save the same step, and end.
    gang = TwoProcesses(lab, store, spec, 1)
    await_rows(store, spec, 5)
    gang.processes[1].terminate()
    assert gang.end() == [EXIT_TERMINATED, EXIT_TERMINATED], gang.log.read_text()
    (saved,) = [path.name for path in (Path(store.url(spec)) / "checkpoints").iterdir()]
    kept = int(saved.removeprefix("step-")) + 1
    assert progress_of(store, "pod-0-1")["step"] == kept

    # One is killed between a checkpoint and its evaluation; the other cannot go on, says so, and ends.
    assert kept <= EVALUATED[1]
    every = str(EVALUATED[1])
    last = f"{store.url(spec)}/checkpoints/step-{every}"
    options = ("--checkpoint-every-steps", every, "--peak-flops", "1e12")
    gang = TwoProcesses(lab, store, spec, 2, *options, killed_after=last)
    assert gang.processes[1].wait(timeout=PATIENCE) == -signal.SIGKILL
    killed = time.monotonic()
    assert gang.end()[0] not in (0, EXIT_REFUSED, EXIT_TERMINATED)
    assert time.monotonic() - killed < 120
    told = MessageReader(store.objects, "gang", "pod-0-2").read()
    assert told.failed is not None
    assert "process 0 of 2 lost another" in told.failed
    assert told.progress is not None
    assert 0 < told.progress["mfu"] < 1
    assert told.progress["seconds_left"] > 0

    gang = TwoProcesses(lab, store, spec, 3)
    assert gang.end() == [0, 0], gang.log.read_text()
    assert f"after step {EVALUATED[1] + 1} of 72" in gang.log.read_text()
    assert f"step {EVALUATED[1] + 1} was not evaluated" in gang.log.read_text()
    ours, theirs = table(store, spec), table(uninterrupted, spec)
    assert ours["step"].to_list() == theirs["step"].to_list()
    assert worst(ours["loss"].to_list(), theirs["loss"].to_list()) < TOLERANCE
    record, alone = store.artifact(spec).record, uninterrupted.artifact(spec).record
    assert worst(list(record.summary["evals"].values()), list(alone.summary["evals"].values())) < TOLERANCE
    on_the_way, expected = evaluations(store, spec), evaluations(uninterrupted, spec)
    assert [row[:2] for row in on_the_way] == [row[:2] for row in expected]
    assert worst([float.fromhex(row[2]) for row in on_the_way], [float.fromhex(row[2]) for row in expected]) < TOLERANCE
    assert record.provenance.retries == 2
    assert record.summary["hardware"] == {"device": "cpu", "count": 2, "processes": 2}
    attempts = record.summary["attempts"]
    # JAX may end the process that is left before anybody can say why.
    assert (attempts["preempted"], attempts["peer_lost"] + attempts["died"], attempts["failed"]) == (1, 1, 0)
    # Only the leader tells.
    assert MessageReader(store.objects, "gang", "pod-1-3").read().opened is None


def test_a_gang_has_nothing_to_do_once_the_artifact_is_there(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    assert TwoProcesses(lab, uninterrupted, run_spec(graph), 9).end() == [0, 0]


def test_a_task_for_one_process_is_refused_by_all(shards: tuple[LabEnvironment, LabGraph]) -> None:
    lab, _ = shards
    store = copied_store(lab, "no-gang")
    gang = TwoProcesses(lab, store, ArtifactSpec("tokenizer/none", "train_tokenizer", "2"), 10)
    assert gang.end() == [EXIT_REFUSED, EXIT_REFUSED]
    assert gang.log.read_text().count("runs in one process") == 2


IMPATIENT = """
import functools
from marin_core import worker
worker.Gang.join = functools.partial(worker.Gang.join, seconds=2)
worker.main()
"""


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (0, "this is process 0, at {at}, and not all 2 processes came within 2 s"),
        (1, "process 1 did not reach the coordinator {at} within 2 s (Connection refused)"),
    ],
)
def test_who_is_missing_is_named_and_told_from_a_failure(index: int, message: str, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    plan = store.save_plan(ArtifactSpec("tokenizer/none", "train_tokenizer", "2"))
    at = f"127.0.0.1:{free_port()}"
    gang = ["--job", "gang", "--processes", "2", "--coordinator", at, "--scratch", str(tmp_path)]
    result = subprocess.run(
        [sys.executable, "-c", IMPATIENT, "--store", store.root, "--plan", plan, *gang],
        cwd=REPOSITORY,
        env=os.environ | {"JOB_COMPLETION_INDEX": str(index), "MARIN_POD": "pod"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == EXIT_PEERS_MISSING, result.stderr
    assert message.format(at=at) in (MessageReader(store.objects, "gang", "pod").read().failed or "")


def test_a_batch_that_the_chips_cannot_share_is_refused(shards: tuple[LabEnvironment, LabGraph]) -> None:
    lab, graph = shards
    store = copied_store(lab, "indivisible")
    worker = start_worker(lab, store, run_spec(graph), XLA_FLAGS="--xla_force_host_platform_device_count=3")
    output, _ = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == EXIT_REFUSED
    error = json.loads(output.splitlines()[-1])["error"]
    assert "its batch of 2 sequences of width 56 cannot be shared by 3 devices" in error
    assert "choose a pool whose chips can share it" in error
