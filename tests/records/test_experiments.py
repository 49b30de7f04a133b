"""Experiments as they are declared and registered, on runs that the test makes up and the lab's own tasks."""

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marin_assets.experiments import EXPERIMENTS
from marin_assets.experiments.ladders import middle_cells
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.graph.experiments import ExperimentArtifacts
from marin_core.profile import load_profile
from marin_core.recipes import AdamWParams, TrainPlan
from marin_core.records.declared import declared_experiments
from marin_core.records.experiment import DifferenceForecast, Experiment, SuiteForecast, Verdict
from marin_core.records.outcome import ExitClass, Outcome
from tests.scaling.known_lab import KnownLab

ID = "adamh_against_adamw"


def with_experiment(lab: KnownLab, id_: str = ID, **changes: Any) -> ExperimentArtifacts:
    """An experiment of the lab, with changes to its declaration."""
    (declared,) = [experiment for experiment in EXPERIMENTS if experiment.id == id_]
    changed = dataclasses.replace(declared, **changes)
    graph = LabGraph(lab.graph.scale, lab.graph.hub, (changed,))
    return graph.experiments[id_]


def finish_arms(lab: KnownLab, made: ExperimentArtifacts) -> None:
    for runs in made.runs.values():
        for run in runs:
            lab.finish_run(str(run.partition), run)


def test_the_core_finds_what_the_package_declares() -> None:
    assert declared_experiments() == EXPERIMENTS
    assert len({experiment.id for experiment in EXPERIMENTS}) == len(EXPERIMENTS) >= 4


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_what_has_a_verdict_says_why_and_has_prose(experiment: Experiment) -> None:
    if experiment.verdict is not Verdict.IN_PROGRESS:
        assert experiment.conclusion
        assert experiment.prose.strip()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": "AdamW!"}, "is not lower-case letters"),
        ({"selection": ("delphi/suite",)}, "give exactly one of them"),
        ({"arms": None}, "give exactly one of them"),
        ({"arms": None, "selection": ("delphi/suite",)}, "forecasts a difference of arms, but has none"),
        ({"arms": lambda ladder: {"adamh": ladder[:2], "adamw": ladder[:1]}}, "adamh has 2, adamw has 1; pair them up"),
        ({"arms": lambda ladder: {"adamh": []}}, "adamh has 0"),
        ({"forecast": DifferenceForecast("adamh", "sgd", 0, 1)}, "forecasts of arm 'sgd'; there are adamh, adamw_low"),
        (
            {"arms": None, "selection": ("delphi/nothing",), "forecast": SuiteForecast()},
            "selects 'delphi/nothing'; there are delphi/",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_a_declaration_that_contradicts_itself_is_one_line(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(MarinError) as refused:
        with_experiment(KnownLab(tmp_path), **changes)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_experiments_cannot_call_different_runs_alike(tmp_path: Path) -> None:
    """The outcome of one would pass for that of the other."""
    lab = KnownLab(tmp_path)
    (declared,) = [experiment for experiment in EXPERIMENTS if experiment.id == ID]
    assert declared.arms
    arms = declared.arms

    def one_arm_in_float16(ladder: Sequence[TrainPlan]) -> dict[str, list[TrainPlan]]:
        plans = {arm: list(found) for arm, found in arms(ladder).items()}
        return plans | {"adamw": [dataclasses.replace(plan, precision="f16") for plan in plans["adamw"]]}

    same = dataclasses.replace(declared, id="the_same_runs")
    assert LabGraph(lab.graph.scale, lab.graph.hub, (declared, same)).experiments
    other = dataclasses.replace(declared, id="other_runs", arms=one_arm_in_float16)
    with pytest.raises(MarinError, match=f"are called .*-adamw, one of experiment {ID} and one of other_runs"):
        _ = LabGraph(lab.graph.scale, lab.graph.hub, (declared, other)).experiments


def test_a_ladder_s_plan_is_the_ladder_s_run(tmp_path: Path) -> None:
    lab = KnownLab(tmp_path)
    runs = with_experiment(lab).runs
    cells = {spec.fingerprint for spec in lab.graph.cells.values()}
    assert all(run.fingerprint in cells for run in runs["adamh"])
    others = [run for arm, of_arm in runs.items() if arm != "adamh" for run in of_arm]
    assert not any(run.fingerprint in cells for run in others)
    assert len({run.fingerprint for run in others}) == len(others) == 9


def test_the_optimizer_is_all_that_adamw_s_plans_differ_in(tmp_path: Path) -> None:
    runs = with_experiment(KnownLab(tmp_path)).runs
    for arm, of_arm in runs.items():
        for adamh, other in zip(runs["adamh"], of_arm, strict=True):
            a, b = (TrainPlan.from_json(dict(run.config["plan"])) for run in (adamh, other))
            assert dataclasses.replace(b, optimizer=a.optimizer) == a
            if arm != "adamh":
                assert isinstance(b.optimizer, AdamWParams)
                same = {f.name for f in dataclasses.fields(b.optimizer)} - {"learning_rate", "weight_decay"}
                assert all(getattr(b.optimizer, name) == getattr(a.optimizer, name) for name in same)


def test_middle_cells_are_one_of_each_of_the_smallest_budgets() -> None:
    graph = LabGraph.of(load_profile("laptop"))
    chosen = middle_cells([graph.plan(candidate) for candidate in graph.candidates.values()], budgets=2)
    assert [(plan.flops, plan.hidden_dim) for plan in chosen] == [(1e11, 32), (2e11, 32)]


def test_verdict_and_prose_are_no_part_of_what_is_registered(tmp_path: Path) -> None:
    lab = KnownLab(tmp_path)
    before, after = (
        with_experiment(lab, verdict=verdict, conclusion=text, prose=text)
        for verdict, text in ((Verdict.IN_PROGRESS, ""), (Verdict.MIXED, "What we make of it."))
    )
    assert before.registration.fingerprint == after.registration.fingerprint
    assert before.result and after.result
    assert before.result.fingerprint == after.result.fingerprint


def test_another_forecast_is_registered_anew_and_counts_from_then(tmp_path: Path) -> None:
    lab = KnownLab(tmp_path)
    made = with_experiment(lab)
    first = lab.build(made.registration)
    assert lab.build(made.registration) == first
    finish_arms(lab, made)
    assert made.result
    assert lab.build(made.result).summary["registered_before_runs"] is True

    wiser = with_experiment(lab, forecast=DifferenceForecast("adamh", "adamw", -1, 1))
    again = lab.build(wiser.registration)
    assert again.fingerprint != first.fingerprint
    assert again.provenance.ended > first.provenance.ended
    assert lab.store.record(first.name, first.fingerprint) == first
    assert wiser.result
    late = lab.build(wiser.result)
    assert late.summary["registered_before_runs"] is False
    assert lab.json(wiser.result, "result.json")["registered"] == again.provenance.ended


def test_a_comparison_has_its_tables_and_figures(tmp_path: Path) -> None:
    id_ = "float16_throughout"
    keys = [str(run.partition) for run in with_experiment(KnownLab(tmp_path), id_).runs["float16"]]
    lab = KnownLab(tmp_path, diverged=tuple(keys), excess={f"{keys[0]}_compute": 0.25})
    made = with_experiment(lab, id_)
    lab.build(made.registration)
    finish_arms(lab, made)
    assert made.result
    summary = lab.build(made.result).summary
    assert summary["diverged"] == keys
    assert (summary["difference"], summary["forecast_held"], summary["loss_float16"]) == (None, False, None)

    runs, curves = lab.table(made.result, "runs.parquet"), lab.table(made.result, "curves.parquet")
    assert runs.filter(pl.col("status") == "diverged")["partition"].to_list() == keys
    for row in runs.iter_rows(named=True):
        steps = lab.table(
            next(r for r in made.runs[row["arm"]] if r.fingerprint == row["fingerprint"]), "metrics.parquet"
        )
        mine = curves.filter(pl.col("fingerprint") == row["fingerprint"])
        assert mine["loss"].to_list() == steps["loss"].to_list()
        plan = TrainPlan.from_json(lab.store.record("checkpoints/delphi", row["fingerprint"]).payload["config"]["plan"])  # type: ignore[union-attr]
        assert len(mine) == row["steps"]
        assert mine["tokens"][-1] == row["steps"] * plan.batch_size * plan.seq_len
    assert lab.json(made.result, "result.json")["settings"] == {
        "precision": {"float32": "f32", "float16": "f16", "float16_compute": "p=f32,c=f16"}
    }
    from PIL import Image

    for name in summary["figures"]:
        artifact = lab.store.artifact(made.result)
        assert Image.open(io.BytesIO(artifact.read(f"{name}.png"))).size[0] > 500
        svg = artifact.read(f"{name}.svg").decode()
        assert "<svg" in svg
    # The figure says what became of a run without a loss.
    assert summary["figures"] == ["final_losses", "loss_curves"]


def test_equal_runs_make_equal_comparisons(tmp_path: Path) -> None:
    contents = []
    for folder in ("here", "there"):
        lab = KnownLab(tmp_path / folder)
        made = with_experiment(lab)
        registered = lab.build(made.registration)
        finish_arms(lab, made)
        assert made.result
        lab.build(made.result)
        said = lab.json(made.result, "result.json")
        assert said.pop("registered") == registered.provenance.ended
        contents.append((said, lab.store.artifact(made.result).read("loss_curves.png")))
    assert contents[0] == contents[1]


def test_work_that_failed_is_an_experiment_s_if_it_is_of_its_runs(tmp_path: Path) -> None:
    lab = KnownLab(tmp_path)
    made = with_experiment(lab)
    assert made.result
    run = made.runs["adamw"][0]
    other = next(cell for cell in lab.graph.cells.values() if cell not in made.runs["adamh"])

    def outcome(asset: str, fingerprint: str | None, status: str = "failed") -> Outcome:
        failed = ExitClass.OUT_OF_MEMORY if status == "failed" else None
        return Outcome("run", asset, None, status, None, "2026-01-01", fingerprint=fingerprint, exit_class=failed)

    mine = [outcome(run.name, run.fingerprint), outcome(made.result.name, None)]
    not_mine = [outcome(run.name, run.fingerprint, "succeeded"), outcome(other.name, other.fingerprint)]
    assert made.failed([*mine, *not_mine, outcome("mixture/tiny", "0" * 16)]) == mine

    suite = with_experiment(lab, "laptop_ladder")
    of_cell, held_out = outcome(other.name, other.fingerprint), outcome(other.name, "f" * 16)
    assert suite.failed([of_cell, held_out]) == [of_cell]
    assert suite.failed([of_cell, held_out], heldout=["f" * 16]) == [of_cell, held_out]
