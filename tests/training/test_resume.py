"""A run that is killed and resumed is the run that was not, bit for bit."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from marin_core.build import BuildOptions, build
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.jobs.spec import EXIT_REFUSED
from marin_core.store import ArtifactSpec, Store
from tests.conftest import LabEnvironment
from tests.training.runs import CELL, copied_store, curve, finish, kill_at_step, start_worker

pytestmark = pytest.mark.slow


def test_a_killed_run_resumes_to_the_same_curve_and_the_same_evaluation(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = graph.cells[CELL]
    store = copied_store(lab, "killed")
    kill_at_step(start_worker(lab, store, spec), 13)
    assert store.record(spec.name, spec.fingerprint) is None
    messages = finish(start_worker(lab, store, spec))
    assert any("resuming" in message and "after step" in message for message in messages)
    assert curve(store, spec) == curve(uninterrupted, spec)
    ours, theirs = store.artifact(spec).record, uninterrupted.artifact(spec).record
    assert ours.summary["evals"] == theirs.summary["evals"]
    assert ours.content == theirs.content
    assert [row[0] for row in curve(store, spec)] == list(range(spec.config["plan"]["steps"]))


def test_an_unreadable_newest_checkpoint_costs_only_the_steps_since_the_one_before(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = graph.cells[CELL]
    store = copied_store(lab, "damaged")
    kill_at_step(start_worker(lab, store, spec), 30)
    completed = [path.parent for path in (Path(store.url(spec)) / "checkpoints").glob("step-*/metadata.json")]
    newest = max(completed, key=lambda path: int(path.name.split("-")[1]))
    for file in newest.rglob("*"):
        if file.is_file() and file.name != "metadata.json":
            os.truncate(file, file.stat().st_size // 2)
    messages = finish(start_worker(lab, store, spec))
    assert any(f"checkpoint {newest} is unreadable" in message for message in messages)
    assert any("resuming" in message for message in messages)
    assert curve(store, spec) == curve(uninterrupted, spec)


def test_no_readable_checkpoint_is_an_error_and_never_step_zero(shards: tuple[LabEnvironment, LabGraph]) -> None:
    lab, graph = shards
    spec = graph.cells[CELL]
    store = copied_store(lab, "ruined")
    kill_at_step(start_worker(lab, store, spec), 30)
    for metadata in (Path(store.url(spec)) / "checkpoints").glob("step-*/metadata.json"):
        metadata.write_text("{")
    worker = start_worker(lab, store, spec)
    output, _ = worker.communicate(timeout=300)
    assert worker.returncode == EXIT_REFUSED
    error = json.loads(output.splitlines()[-1])["error"]
    assert "is readable; delete that folder to train from step 0" in error
    assert store.record(spec.name, spec.fingerprint) is None


def test_a_diverged_run_is_recorded_and_has_no_loss(shards: tuple[LabEnvironment, LabGraph]) -> None:
    lab, graph = shards
    healthy = graph.cells[CELL]
    plan = json.loads(json.dumps(dict(healthy.config["plan"])))
    plan["optimizer"]["adam_lr"] = 1e30
    spec = ArtifactSpec(healthy.name, healthy.task, healthy.code_version, {"plan": plan}, healthy.inputs, "diverged")
    store = copied_store(lab, "diverged")
    finish(start_worker(lab, store, spec))
    summary = store.artifact(spec).record.summary
    assert summary["status"] == "diverged"
    assert summary["eval_loss"] is None
    assert not (Path(store.url(spec)) / "checkpoints").exists() or not list(
        Path(store.url(spec)).glob("checkpoints/step-*")
    )


def test_shards_of_another_tokenizer_are_refused_before_the_first_step(
    shards: tuple[LabEnvironment, LabGraph], tmp_path: Path
) -> None:
    lab, graph = shards
    healthy = graph.cells[CELL]
    plan = {**healthy.config["plan"], "vocab_size": 4096}
    spec = ArtifactSpec(healthy.name, healthy.task, healthy.code_version, {"plan": plan}, healthy.inputs, "mismatch")
    with pytest.raises(MarinError, match="has 512 entries, recipe 'tiny' expects 4096"):
        build(spec, Store(str(lab.store)), BuildOptions(tmp_path), print)


def test_a_finished_run_keeps_the_checkpoint_of_its_last_step(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    _, graph = shards
    spec = graph.cells[CELL]
    record = uninterrupted.artifact(spec).record
    folders = {file.path.split("/")[1] for file in record.files if file.path.startswith("checkpoints/step-")}
    assert folders == {f"step-{spec.config['plan']['steps'] - 1}"}


def test_a_run_killed_between_its_last_step_and_its_record_is_only_committed(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = graph.cells[CELL]
    store = Store(str(lab.folder / "unrecorded"))
    subprocess.run(["cp", "-r", uninterrupted.root, store.root], check=True)
    (Path(store.url(spec)) / "artifact.json").unlink()
    finish(start_worker(lab, store, spec))
    assert curve(store, spec) == curve(uninterrupted, spec)
    assert store.artifact(spec).record.content == uninterrupted.artifact(spec).record.content
