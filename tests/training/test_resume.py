"""A run that is killed and resumed is the run that was not, bit for bit."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from marin_core.build import BuildOptions, build
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.jobs.spec import EXIT_REFUSED, EXIT_TERMINATED
from marin_core.store import ArtifactSpec, Store
from tests.conftest import LabEnvironment
from tests.training.runs import (
    EVALUATED,
    KEPT,
    copied_store,
    curve,
    evaluations,
    finish,
    kill_at_step,
    run_spec,
    start_worker,
)

pytestmark = pytest.mark.slow


def test_a_killed_run_resumes_to_the_same_curve_and_the_same_evaluation(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = copied_store(lab, "killed")
    kill_at_step(start_worker(lab, store, spec), 13)
    assert store.record(spec.name, spec.fingerprint) is None
    messages = finish(start_worker(lab, store, spec))
    assert any("resuming" in message and "after step" in message for message in messages)
    assert curve(store, spec) == curve(uninterrupted, spec)
    ours, theirs = store.artifact(spec).record, uninterrupted.artifact(spec).record
    assert ours.summary["evals"] == theirs.summary["evals"]
    assert evaluations(store, spec) == evaluations(uninterrupted, spec)
    assert ours.content == theirs.content
    assert [row[0] for row in curve(store, spec)] == list(range(spec.config["plan"]["steps"]))


def test_what_was_owed_is_made_up_and_a_damaged_newest_checkpoint_costs_only_the_steps_since_the_one_before(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = copied_store(lab, "damaged")
    checkpoints = Path(store.url(spec)) / "checkpoints"

    # Killed when the temporary checkpoint of step 23 is complete, and its evaluation is to begin.
    killed = start_worker(
        lab,
        store,
        spec,
        every_steps=23,
        module="tests.training.killed_worker",
        KILLED_AFTER=str(checkpoints / "step-23"),
    )
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL

    # SIGTERM while that is made up is obeyed before another step.
    terminated = start_worker(
        lab,
        store,
        spec,
        every_steps=23,
        module="tests.training.killed_worker",
        KILLED_AFTER=str(checkpoints / "step-23"),
        KILLED_BY="SIGTERM",
    )
    output, _ = terminated.communicate(timeout=300)
    assert terminated.returncode == EXIT_TERMINATED
    assert "step 24 was not evaluated" in output
    assert [path.name for path in checkpoints.glob("step-*")] == ["step-23"]

    # Killed after the permanent one of step 40, and a temporary one.
    resumed = start_worker(lab, store, spec, every_steps=23)
    kill_at_step(resumed, 60)
    assert store.record(spec.name, spec.fingerprint) is None
    completed = {path.parent.name: json.loads(path.read_text()) for path in checkpoints.glob("step-*/metadata.json")}
    assert {name: metadata["is_temporary"] for name, metadata in completed.items()} == {
        "step-40": False,
        "step-46": True,
    }
    for file in (checkpoints / "step-46").rglob("*"):
        if file.is_file() and file.name != "metadata.json":
            os.truncate(file, file.stat().st_size // 2)

    messages = finish(start_worker(lab, store, spec, every_steps=23))
    assert any(f"checkpoint {checkpoints / 'step-46'} is unreadable" in message for message in messages)
    assert any("after step 41 of 72" in message for message in messages)
    assert curve(store, spec) == curve(uninterrupted, spec)
    assert evaluations(store, spec) == evaluations(uninterrupted, spec)
    record = store.artifact(spec).record
    assert record.content == uninterrupted.artifact(spec).record.content
    assert record.summary["attempts"] == {"preempted": 1, "peer_lost": 0, "failed": 0, "died": 2}
    with store.artifact(spec).open("attempts.jsonl") as file:
        began = [said for said in map(json.loads, file) if "began" in said]
    assert [(line["attempt"], line["after_step"], line["device"]) for line in began] == [
        (1, -1, "cpu"),
        (2, 23, "cpu"),
        (3, 23, "cpu"),
        (4, 40, "cpu"),
    ]


def test_no_readable_checkpoint_is_an_error_and_never_step_zero(shards: tuple[LabEnvironment, LabGraph]) -> None:
    lab, graph = shards
    spec = run_spec(graph)
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
    healthy = run_spec(graph)
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
    healthy = run_spec(graph)
    plan = {**healthy.config["plan"], "vocab_size": 4096}
    spec = ArtifactSpec(healthy.name, healthy.task, healthy.code_version, {"plan": plan}, healthy.inputs, "mismatch")
    with pytest.raises(MarinError, match="has 512 entries, recipe 'tiny' expects 4096"):
        build(spec, Store(str(lab.store)), BuildOptions(tmp_path), print)


def test_a_finished_run_has_the_checkpoints_and_the_evaluations_of_its_plan(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    _, graph = shards
    spec = run_spec(graph)
    artifact = uninterrupted.artifact(spec)
    kept = {file.path.split("/")[1] for file in artifact.record.files if file.path.startswith("checkpoints/")}
    assert kept == {f"step-{step}" for step in KEPT}
    found = evaluations(uninterrupted, spec)
    assert sorted({step for step, _, _ in found}) == EVALUATED
    # The last is the run's own, and each one as a whole.
    last = {name: float.fromhex(value) for step, name, value in found if step == EVALUATED[-1]}
    assert last == artifact.read_json("evals.json")
    assert {"eval/loss", "eval/macro_loss", "eval/code/bpb"} < last.keys()
    assert all(len([1 for at, _, _ in found if at == step]) == len(last) for step in EVALUATED)
    assert last["eval/loss"] < next(float.fromhex(value) for step, name, value in found if name == "eval/loss")


def test_a_run_killed_between_its_last_step_and_its_record_is_only_committed(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = Store(str(lab.folder / "unrecorded"))
    subprocess.run(["cp", "-r", uninterrupted.root, store.root], check=True)
    (Path(store.url(spec)) / "artifact.json").unlink()
    finish(start_worker(lab, store, spec))
    assert curve(store, spec) == curve(uninterrupted, spec)
    assert evaluations(store, spec) == evaluations(uninterrupted, spec)
    assert store.artifact(spec).record.content == uninterrupted.artifact(spec).record.content
