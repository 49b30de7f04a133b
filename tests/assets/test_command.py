"""The main job by the user's own command: once, again, after a deletion, after a kill, one cell alone."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from marin_core.graph import CHECKPOINTS, EVALS, LabGraph
from marin_core.profile import load_profile
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
from tests.conftest import REPOSITORY, TINY_PROFILE, LabEnvironment

pytestmark = pytest.mark.slow
LITERAL = "dagster asset materialize --select delphi/*"
HELD_OUT = "1.28e11-optimal"


def instance(lab: LabEnvironment) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(str(lab.folder / "dagster"))


def latest(lab: LabEnvironment, name: str) -> dg.AssetMaterialization:
    event = instance(lab).get_latest_materialization_event(dg.AssetKey(name.split("/")))
    assert event and event.asset_materialization
    return event.asset_materialization


def reused(lab: LabEnvironment, name: str) -> bool:
    return bool(latest(lab, name).metadata["reused"].value)


def records(lab: LabEnvironment) -> dict[str, ArtifactRecord]:
    """What was built, by name and partition, without what was told of runs."""
    found = [json.loads(path.read_text()) for path in lab.store.rglob("artifact.json")]
    built = [record for record in found if not record["name"].startswith("records/")]
    return {f"{r['name']} {r['partition'] or ''}".strip(): ArtifactRecord.from_json(r) for r in built}


def copy_of(finished: LabEnvironment, folder: Path) -> LabEnvironment:
    shutil.copytree(finished.folder, folder / "lab", ignore=shutil.ignore_patterns("logs", "scratch"))
    return LabEnvironment(folder / "lab")


def heldout_of(lab: LabEnvironment) -> ArtifactSpec:
    (run,) = graph().heldout_runs(Store(str(lab.store))).values()
    return run


def graph() -> LabGraph:
    return LabGraph.of(load_profile(str(TINY_PROFILE)))


RUNS = [*graph().cells, HELD_OUT]


def test_the_literal_command_runs_the_whole_pipeline(finished_lab: LabEnvironment) -> None:
    built = records(finished_lab)
    # Evaluation text is held against the training text; its tokens are for whoever asks for them. So are publications.
    left = {"tokenized/language_reference", "publish/dataset"}
    # What is believed of the suite is registered before it runs; what else belongs to experiments is for who asks.
    of_experiments = {spec.name for spec in graph().unpartitioned() if spec.name.startswith("experiments/")}
    left |= of_experiments - {"experiments/laptop_ladder/registration"}
    assert {spec.name for spec in graph().unpartitioned()} - set(built) == left
    assert {f"{name} {key}" for name in (CHECKPOINTS, EVALS) for key in RUNS} <= set(built)
    verdict = built["delphi/verdict"].summary
    assert verdict["registered_before_runs"] is True
    assert verdict["actual_loss"] > 0
    assert verdict["predicted_loss"] > 0


def test_progress_is_told_while_it_runs(finished_lab: LabEnvironment) -> None:
    log = (finished_lab.folder / "first-run.log").read_text()
    assert "assets that the store lacks" in log
    assert f"{len(graph().cells)} runs" in log
    assert "tokens/s" in log
    assert "verdict: predicted" in log


@pytest.mark.parametrize("name", [CHECKPOINTS, EVALS])
def test_every_run_is_a_materialized_partition(finished_lab: LabEnvironment, name: str) -> None:
    assert instance(finished_lab).get_materialized_partitions(dg.AssetKey(name.split("/"))) == set(RUNS)


def test_the_event_log_stays_small(finished_lab: LabEnvironment) -> None:
    """A few dozen events for the run of an asset, whatever its number of steps; nothing near 60 kB a training run."""
    run = instance(finished_lab).get_runs()[0]
    logs = instance(finished_lab).all_logs(run.run_id)
    suite = [entry for entry in logs if entry.step_key == "delphi__suite"]
    # A handful for each run, and the step's own and its checks'.
    assert len(suite) < 5 * len(graph().cells) + 10
    size = sum(len(dg.serialize_value(entry)) for entry in suite)
    assert size / len(graph().cells) < 60_000


def test_the_dataset_has_one_row_per_run(finished_lab: LabEnvironment) -> None:
    record = records(finished_lab)["delphi/dataset"]
    table = pl.read_parquet(finished_lab.store / record.name / record.fingerprint / "ladder.parquet")
    assert dict(table["kind"].value_counts().iter_rows()) == {
        "isoflop": len(graph().cells),
        "optimum": len(graph().scale.fit_budgets),
        "held-out": 1,
    }


def test_every_run_is_evaluated_on_every_validation_set(finished_lab: LabEnvironment) -> None:
    record = records(finished_lab)["delphi/evals"]
    table = pl.read_parquet(finished_lab.store / record.name / record.fingerprint / "evals.parquet")
    assert set(table["status"]) == {"succeeded"}
    for run in RUNS:
        bits = table.filter((pl.col("partition") == run) & pl.col("metric").str.ends_with("/bits_per_byte"))
        assert set(bits["metric"].str.split("/").list.first()) == {"micro", "macro", *graph().sources}
        # A uniform guess among 512 tokens takes 9 bits a token; bytes are more than tokens.
        assert (bits["value"] < 9).all()


def test_a_retried_evaluation_is_run_again_and_what_is_made_of_it_follows(
    finished_lab: LabEnvironment, tmp_path: Path
) -> None:
    lab = copy_of(finished_lab, tmp_path)
    run = next(iter(graph().cells.values()))
    scored = graph().evaluations(run)["perplexity"]
    path = lab.store / scored.name / scored.fingerprint / "artifact.json"
    record = json.loads(path.read_text())
    path.write_text(
        json.dumps({**record, "content": "of another", "summary": {**record["summary"], "retryable": True}})
    )
    result = lab.materialize("evals/delphi", "--partition", str(run.partition))
    assert result.returncode == 0, result.stderr
    assert "1 of 1 evaluations are not in the store yet" in result.stderr
    assert records(lab)[f"{scored.name} {run.partition}"].content == record["content"]


def test_the_second_time_trains_nothing_and_says_so(finished_lab: LabEnvironment, tmp_path: Path) -> None:
    lab = copy_of(finished_lab, tmp_path)
    before = records(lab)
    started = time.monotonic()
    result = lab.bash(LITERAL)
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - started < 60
    assert records(lab) == before
    assert "tokens/s" not in result.stderr
    assert all(reused(lab, spec.name) for spec in graph().unpartitioned() if spec.name.startswith("delphi/"))


def test_a_deleted_artifact_is_rebuilt_and_nothing_is_trained_for_it(
    finished_lab: LabEnvironment, tmp_path: Path
) -> None:
    lab = copy_of(finished_lab, tmp_path)
    before = records(lab)
    shutil.rmtree(lab.store / "delphi" / "scaling_law")
    shutil.rmtree(lab.store / "curated" / "math")
    result = lab.bash(LITERAL)
    assert result.returncode == 0, result.stderr
    after = records(lab)
    rebuilt = {name for name in before if after[name].provenance != before[name].provenance}
    # Their content came out as it was, so what depends on them still fits.
    assert rebuilt == {"delphi/scaling_law", "curated/math"}
    assert not reused(lab, "delphi/scaling_law")
    assert reused(lab, "delphi/suite")
    assert reused(lab, "delphi/figures")


def test_a_forecast_made_again_is_judged_again_and_seen_to_be_late(
    finished_lab: LabEnvironment, tmp_path: Path
) -> None:
    lab = copy_of(finished_lab, tmp_path)
    shutil.rmtree(lab.store / "delphi" / "forecast")
    result = lab.bash(LITERAL)
    assert result.returncode == 0, result.stderr
    verdict = records(lab)["delphi/verdict"].summary
    assert verdict["registered_before_runs"] is False
    assert "tokens/s" not in result.stderr
    assert "'forecast_came_first' on 'delphi/verdict' did not pass" in result.stderr


def test_one_cell_is_trained_alone(finished_lab: LabEnvironment, tmp_path: Path) -> None:
    lab = copy_of(finished_lab, tmp_path)
    key, spec = next(iter(graph().cells.items()))
    shutil.rmtree(lab.store / spec.name / spec.fingerprint)
    result = lab.materialize("checkpoints/delphi", "--partition", key)
    assert result.returncode == 0, result.stderr
    assert Store(str(lab.store)).record(spec.name, spec.fingerprint) is not None
    assert latest(lab, "checkpoints/delphi").partition == key


def test_a_cell_before_its_data_names_what_is_missing(lab_environment: LabEnvironment) -> None:
    key = next(iter(graph().cells))
    result = lab_environment.materialize("checkpoints/delphi", "--partition", key)
    assert result.returncode != 0
    assert "mixture/tiny" in result.stderr
    assert "is not in the store" in result.stderr
    assert not records(lab_environment)


def test_an_unwritable_store_is_one_line(lab_environment: LabEnvironment) -> None:
    blocked = lab_environment.folder / "file"
    blocked.write_text("")
    result = lab_environment.bash(f"MARIN_STORE={blocked}/store {LITERAL}")
    assert result.returncode != 0
    assert f"store {blocked}/store is not writable" in result.stderr
    assert "set MARIN_STORE" in result.stderr


def test_killed_anywhere_and_started_again_it_finishes_with_the_same_bits(
    finished_lab: LabEnvironment, tmp_path: Path
) -> None:
    """SIGKILL to the whole job in the middle of its training; what was committed is kept, and nothing came out other
    than in a lab of its own that was left in peace: shards by their bytes, runs by every loss. Two thirds of the runs
    are there when it begins, all data is not."""
    lab = copy_of(finished_lab, tmp_path)
    cells = graph().cells
    for spec in (*graph().unpartitioned(), *list(cells.values())[: len(cells) // 3], heldout_of(lab)):
        shutil.rmtree(lab.store / spec.name / spec.fingerprint, ignore_errors=True)
    committed = len(list(lab.store.glob("checkpoints/delphi/*/artifact.json")))
    job = subprocess.Popen(
        ["bash", "-c", LITERAL],
        cwd=REPOSITORY,
        env=lab.variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while len(list(lab.store.glob("checkpoints/delphi/*/artifact.json"))) < committed + 1:
        assert time.monotonic() < deadline
        assert job.poll() is None
        time.sleep(0.2)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    time.sleep(2)  # workers see their parent gone
    before = records(lab)
    workers = subprocess.run(["pgrep", "-f", "--", f"--store {lab.store}"], capture_output=True, text=True)
    assert not workers.stdout, "workers outlived the job"
    result = lab.bash(LITERAL)
    assert result.returncode == 0, result.stderr
    after = records(lab)
    assert {name: after[name] for name in before} == before
    elsewhere = records(finished_lab)
    assert after.keys() == elsewhere.keys()
    stages = (
        "raw/",
        "curated/",
        "tokenizer/",
        "tokenized/",
        "mixture/",
        "checkpoints/",
        "delphi/suite",
        "delphi/isoflop",
    )
    same = [name for name in after if name.startswith(stages)]
    assert {name: after[name].content for name in same} == {name: elsewhere[name].content for name in same}
    shards = [name for name in after if name.startswith(("curated/", "tokenized/"))]
    assert {name: after[name].files for name in shards} == {name: elsewhere[name].files for name in shards}
