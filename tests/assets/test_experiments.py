"""Experiments as assets: a real comparison on top of a finished ladder, and what their selection adds."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from dagster._core.definitions.asset_selection import AssetSelection

from marin_assets.definitions import build_definitions
from marin_assets.keys import artifact_name
from marin_core.graph import LabGraph
from marin_core.graph.experiments import ExperimentArtifacts
from marin_core.profile import load_profile
from marin_core.store import Store
from tests.conftest import LabEnvironment

ID = "adamh_against_adamw"


def opened(lab: LabEnvironment) -> tuple[LabGraph, Store]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_STORE", str(lab.store))
        return LabGraph.of(load_profile(str(lab.profile))), Store(str(lab.store))


def trained_again(made: ExperimentArtifacts, store: Store) -> dict[str, str]:
    """By run, when it was trained."""
    runs = [run for of_arm in made.runs.values() for run in of_arm]
    return {run.fingerprint: store.artifact(run).record.provenance.ended for run in runs}


@pytest.mark.parametrize("id_", [ID, "float16_throughout"])
def test_a_comparison_asks_for_its_data_and_not_for_the_suite(in_lab: LabEnvironment, id_: str) -> None:
    graph = build_definitions().resolve_asset_graph()
    keys = AssetSelection.from_coercible([f"experiments/{id_}/*"]).resolve(graph)
    names = {artifact_name(key) for key in keys}
    assert {f"experiments/{id_}/{part}" for part in ("registration", "result", "retrospective")} <= names
    assert {"raw/code", "tokenizer/tiny", "mixture/tiny"} <= names
    assert not {name for name in names if name.startswith(("delphi/", "checkpoints/", "evals/"))}


def test_the_suite_s_forecast_was_registered_before_its_first_run(finished_lab: LabEnvironment) -> None:
    graph, store = opened(finished_lab)
    registered = store.artifact(graph.experiments["laptop_ladder"].registration).record.provenance.ended
    began = [store.artifact(cell).record.provenance.started for cell in graph.cells.values()]
    assert registered < min(began)


@pytest.mark.slow
def test_a_comparison_reuses_the_ladder_s_runs_and_trains_the_others(
    finished_lab: LabEnvironment, tmp_path: Path
) -> None:
    lab = LabEnvironment(tmp_path / "lab")
    shutil.copytree(finished_lab.folder, lab.folder, ignore=shutil.ignore_patterns("logs", "scratch"))
    graph, store = opened(lab)
    made = graph.experiments[ID]
    assert made.result
    of_ladder = {run.fingerprint: store.artifact(run).record for run in made.runs["adamh"]}

    ran = lab.materialize(f"experiments/{ID}/*")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "9 of 12 runs are not in the store yet" in ran.stdout + ran.stderr
    assert {run.fingerprint: store.artifact(run).record for run in made.runs["adamh"]} == of_ladder

    artifact = store.artifact(made.result)
    runs = pl.read_parquet(artifact.read("runs.parquet"))
    assert runs["status"].to_list() == ["succeeded"] * 12
    for row in runs.iter_rows(named=True):
        record = store.record("checkpoints/delphi", row["fingerprint"])
        assert record
        assert record.summary["eval_loss"] == row["loss"]
        optimizer = json.loads(store.committed(record.name, record.fingerprint).read("plan.json"))["optimizer"]
        assert ("weight_decay" in optimizer) == (row["arm"] != "adamh")
    means = {arm: losses["loss"].mean() for (arm,), losses in runs.group_by("arm")}
    summary = artifact.record.summary
    assert {arm: summary[f"loss_{arm}"] for arm in means} == pytest.approx(means)
    others = {arm: mean for arm, mean in means.items() if arm != "adamh"}
    best = min(others, key=lambda arm: others[arm])  # type: ignore[arg-type, return-value]
    assert summary["compared"] == f"adamh minus {best}"
    assert summary["difference"] == pytest.approx(means["adamh"] - others[best])  # type: ignore[operator]
    assert summary["registered_before_runs"] is True

    (report,) = store.records(f"experiments/{ID}/retrospective")
    text = store.opened(report).read("retrospective.md").decode()
    assert all(row["fingerprint"] in text for row in runs.iter_rows(named=True))
    assert made.experiment.prose in text

    before = trained_again(made, store)
    again = lab.materialize(f"experiments/{ID}/*")
    assert again.returncode == 0, again.stderr
    assert trained_again(made, store) == before
    assert [record.fingerprint for record in store.records(f"experiments/{ID}/result")] == [made.result.fingerprint]
