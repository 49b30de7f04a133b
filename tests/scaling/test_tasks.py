"""From runs to the report by the lab's own tasks, on a lab whose laws are known."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marin_assets.checks.suite import FORECAST_CAME_FIRST
from marin_assets.lab import Lab
from marin_core.columns import COLUMNS
from marin_core.evals.result import RESULT
from marin_core.profile import load_profile
from marin_core.recipes import TrainPlan
from marin_core.scaling import (
    Interval,
    forecast_sentence,
    law_sentence,
    registration_sentence,
    seed_spread_percent,
    token_law_sentence,
    verdict_sentence,
)
from marin_core.store import ArtifactSpec
from marin_core.tasks.scaling import exclusion
from tests.scaling.known_lab import DIVERGED, LAW, NOT_EVALUATED, SIGMOID, SOFT_LAW, TOKEN_LAW, KnownLab

HELD_OUT = ["5.12e11-optimal-s0", "5.12e11-optimal-s42", "1.024e12-optimal"]
CONFIGS = ["ladder", "isoflop_curves", "scaling_law", "evals", "downstream", "loss_curves"]


@pytest.fixture(scope="module")
def constants(known_lab: KnownLab) -> dict[str, Any]:
    return known_lab.json(known_lab.graph.scaling_law, "scaling_law.json")


@pytest.fixture(scope="module")
def verdict(known_lab: KnownLab) -> dict[str, Any]:
    return known_lab.json(known_lab.graph.verdict, "verdict.json")


@pytest.fixture(scope="module")
def task(known_lab: KnownLab) -> dict[str, Any]:
    """The one evaluation with both metrics."""
    (found,) = known_lab.json(known_lab.graph.downstream, "downstream.json")["evaluations"]
    return found


@pytest.fixture
def lab(known_lab: KnownLab, tmp_path: Path) -> KnownLab:
    """A copy of the lab that a test may change."""
    shutil.copytree(known_lab.store.root, tmp_path / "store")
    return KnownLab(tmp_path)


def retire(lab: KnownLab, *specs: ArtifactSpec) -> None:
    for spec in specs:
        lab.store.retire(spec, lab.store.artifact(spec).record)


def summary(lab: KnownLab, spec: ArtifactSpec) -> dict[str, Any]:
    return dict(lab.store.artifact(spec).record.summary)


def test_a_diverged_run_stays_in_the_table_with_the_reason_why_it_is_left_out(known_lab: KnownLab) -> None:
    runs = known_lab.table(known_lab.graph.suite, "runs.parquet")
    assert len(runs) == len(known_lab.graph.cells)
    left_out = runs.filter(pl.col("excluded").is_not_null())
    assert left_out.select("cell", "excluded", "eval_loss").rows() == [
        (DIVERGED, "diverged after 52 of 104 steps", None)
    ]
    assert summary(known_lab, known_lab.graph.suite)["excluded"] == {DIVERGED: "diverged after 52 of 104 steps"}
    assert f"run {DIVERGED} is left out of the fits: diverged after 52 of 104 steps" in known_lab.log


def test_a_run_can_be_left_out_by_hand_with_a_reason(known_lab: KnownLab) -> None:
    cell = "8e9-d0008"
    spec = dataclasses.replace(known_lab.graph.suite, config={"excluded": {cell: "read the wrong data"}})
    known_lab.build(spec)
    runs = known_lab.table(spec, "runs.parquet").filter(pl.col("cell") == cell)
    assert runs.select("excluded", "status").rows() == [("read the wrong data", "succeeded")]
    fits = dataclasses.replace(known_lab.graph.isoflop, inputs={"suite": spec})
    known_lab.build(fits)
    assert [fit["runs"] for fit in known_lab.json(fits, "isoflop.json")][:2] == [5, 5]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"status": "diverged", "steps": 7}, "diverged after 7 of 100 steps"),
        ({"steps": 99}, "ended after 99 of 100 steps"),
        ({"eval_loss": None}, "its evaluation has no loss"),
        ({"eval_loss": float("nan")}, "its evaluation has no loss"),
    ],
)
def test_only_complete_runs_with_a_loss_take_part(
    known_lab: KnownLab, change: dict[str, Any], reason: str | None
) -> None:
    plan = TrainPlan.from_json(dict(next(iter(known_lab.graph.cells.values())).config["plan"]))
    ended = {"status": "succeeded", "steps": 100, "eval_loss": 3.0, **change}
    assert exclusion(ended, dataclasses.replace(plan, steps=100)) == reason


def test_pages_of_runs_do_not_make_other_runs_of_them(tmp_path: Path, known_lab: KnownLab) -> None:
    offline = KnownLab(tmp_path, wandb=lambda key: None)
    for key, spec in offline.graph.cells.items():
        offline.finish_run(key, spec)
    offline.build(offline.graph.recipe)
    record = offline.build(offline.graph.suite)
    assert offline.table(offline.graph.suite, "runs.parquet")["wandb_url"].null_count() == len(offline.graph.cells)
    assert record.content == known_lab.store.artifact(known_lab.graph.suite).record.content


def test_the_laws_are_found_within_their_intervals(constants: dict[str, Any]) -> None:
    law = constants["loss_law"]
    assert law["irreducible"] == pytest.approx(LAW.irreducible, rel=0.1)
    for truth, name in (
        (LAW.irreducible, "irreducible"),
        (LAW.exponent, "exponent"),
        (TOKEN_LAW.exponent, "token_exponent"),
    ):
        assert truth in Interval(**constants[f"{name}_interval"])


def test_the_constants_say_what_they_are_made_from(constants: dict[str, Any]) -> None:
    assert [row["runs"] for row in constants["minima"]] == [6, 5, 6, 6, 6]
    assert constants["excluded_runs"] == [{"cell": DIVERGED, "excluded": "diverged after 52 of 104 steps"}]
    for row in constants["minima"]:
        assert row["tokens"] == pytest.approx(TOKEN_LAW.tokens(row["flops"]), rel=0.08)
        assert row["loss"] == pytest.approx(LAW.loss(row["flops"]), abs=0.005)
    assert [row["flops"] for row in constants["leave_one_out"]] == constants["budgets"]
    assert max(abs(row["error_percent"]) for row in constants["leave_one_out"]) < 0.5
    assert len(constants["sensitivity"]) == 9


def test_each_budget_is_forecast_before_any_of_its_runs(known_lab: KnownLab, verdict: dict[str, Any]) -> None:
    promised = known_lab.json(known_lab.graph.forecast, "forecast.json")
    assert [each["flops"] for each in promised["forecasts"]] == [5.12e11, 1.024e12]
    for each in promised["forecasts"]:
        assert each["predicted_loss"] == pytest.approx(LAW.loss(each["flops"]), rel=0.01)
        assert each["predicted_loss"] in Interval(**each["interval"])
        assert forecast_sentence(each) in known_lab.log
    assert verdict["registered_before_runs"] is True


def test_every_seed_has_its_own_verdict(known_lab: KnownLab, verdict: dict[str, Any]) -> None:
    runs = {run["partition"]: run for run in known_lab.json(known_lab.graph.heldout, "heldout.json")["runs"]}
    assert list(runs) == [each["partition"] for each in verdict["verdicts"]] == HELD_OUT
    assert [each["seed"] for each in verdict["verdicts"]] == [0, 42, 0]
    for each in verdict["verdicts"]:
        actual, predicted = runs[each["partition"]]["eval_loss"], each["predicted_loss"]
        assert each["actual_loss"] == actual
        assert each["error_percent"] == pytest.approx(100 * (actual / predicted - 1))
        assert each["inside_interval"] == (actual in Interval(**each["interval"]))
        assert verdict_sentence(each) in known_lab.log
    spread = seed_spread_percent(verdict["verdicts"])
    assert summary(known_lab, known_lab.graph.verdict)["seed_spread_percent"] == {"5.12e11": spread[5.12e11]}


def test_a_single_held_out_run_is_shown_flat(known_lab: KnownLab) -> None:
    graph = known_lab.graph
    config = {**graph.forecast.config, "heldout_budgets": [1.024e12]}
    forecast = dataclasses.replace(graph.forecast, config=config)
    heldout = dataclasses.replace(graph.heldout, inputs={**graph.heldout.inputs, "forecast": forecast})
    verdict = dataclasses.replace(graph.verdict, inputs={"forecast": forecast, "heldout": heldout})
    shown = {name: dict(known_lab.build(spec).summary) for name, spec in (("f", forecast), ("h", heldout))}
    shown["v"] = dict(known_lab.build(verdict).summary)
    assert shown["f"]["cell"] == shown["h"]["cell"] == shown["v"]["cell"]
    assert shown["f"]["predicted_loss"] == shown["v"]["predicted_loss"]
    assert shown["h"]["eval_loss"] == shown["v"]["actual_loss"]
    assert shown["v"]["registered_before_runs"] is False  # that run had been there
    assert shown["v"]["registered_before_run"] is False


def test_a_held_out_run_trained_again_makes_what_is_made_of_it_stale(lab: KnownLab) -> None:
    graph, key = lab.graph, HELD_OUT[0]
    run = graph.run(key, lab.store)
    made = [graph.heldout, graph.dataset]
    assert all(lab.store.current(spec) for spec in made)
    retire(lab, run)
    dataclasses.replace(lab, excess={key: 0.1}).finish_run(key, run)
    for spec in made:
        assert lab.store.current(spec) is None
        assert lab.store.rebuilt_inputs(lab.store.artifact(spec).record) == [key]
    before = lab.json(graph.heldout, "heldout.json")["runs"][0]
    lab.build(graph.heldout)
    after = lab.json(graph.heldout, "heldout.json")["runs"][0]
    assert after["eval_loss"] == pytest.approx(before["eval_loss"] + 0.1)
    assert lab.store.current(graph.heldout)


def test_a_held_out_evaluation_run_again_makes_the_table_of_scores_stale(lab: KnownLab) -> None:
    graph, key = lab.graph, HELD_OUT[0]
    evaluated = graph.evaluated(graph.run(key, lab.store))
    assert lab.store.current(graph.evals)
    spec = evaluated.inputs["perplexity"]
    was = lab.store.artifact(spec)
    result = was.read_json(RESULT)
    result["metrics"]["macro/bits_per_byte"]["value"] = 7.0
    retire(lab, spec)
    with lab.store.writer(spec) as writer:
        writer.write_json(RESULT, result)
        writer.commit(was.record.summary)
    lab.build(evaluated)
    assert lab.store.current(graph.evals) is None
    assert lab.store.rebuilt_inputs(lab.store.artifact(graph.evals).record) == [key]
    lab.build(graph.evals)
    rows = lab.table(graph.evals, "evals.parquet").filter(pl.col("partition") == key)
    assert rows.filter(pl.col("evaluation") == "perplexity")["value"].to_list() == [7.0]


def test_a_run_is_called_what_the_suite_calls_it_and_not_what_it_was_trained_as(
    known_lab: KnownLab, lab: KnownLab
) -> None:
    graph = lab.graph
    for key in (cell := "8e9-d0008", seed := HELD_OUT[0]):
        run = graph.run(key, lab.store)
        evaluated = graph.evaluated(run)
        evaluations = [spec for spec in evaluated.inputs.values() if "checkpoint" in spec.inputs]
        retire(lab, run, evaluated, *evaluations)
        by_hand = dataclasses.replace(run, partition=f"{key}-by-hand")
        lab.finish_run(key, by_hand)
        lab.evaluate(key, by_hand)
        assert lab.store.artifact(graph.evaluated(run)).record.partition == f"{key}-by-hand"
    retire(lab, graph.suite, graph.heldout, graph.evals)
    for spec in (graph.suite, graph.heldout, graph.evals):
        lab.build(spec)
    assert set(lab.table(graph.suite, "runs.parquet")["cell"]) == set(graph.cells)
    assert [run["partition"] for run in lab.json(graph.heldout, "heldout.json")["runs"]] == HELD_OUT
    evals = lab.table(graph.evals, "evals.parquet")
    assert set(evals["partition"]) == {*graph.cells, *HELD_OUT}
    assert evals["kind"].null_count() == 0
    of = ["partition", "kind", "evaluation", "metric", "value"]
    before = known_lab.table(graph.evals, "evals.parquet").filter(pl.col("partition").is_in([cell, seed]))
    assert evals.filter(pl.col("partition").is_in([cell, seed])).select(of).equals(before.select(of))


def test_a_forecast_made_again_for_one_more_budget_is_one_for_its_runs_only(lab: KnownLab) -> None:
    more = KnownLab(lab.folder, heldout_budgets=(5.12e11, 1.024e12, 2.048e12))
    graph, new = more.graph, "2.048e12-optimal"
    more.build(graph.forecast)
    run = graph.run(new, more.store)
    more.finish_run(new, run)
    more.evaluate(new, run)
    for spec in (graph.heldout, graph.verdict, graph.evals, graph.downstream, graph.figures, graph.report):
        more.build(spec)
    verdict = more.json(graph.verdict, "verdict.json")
    assert verdict["registered_before_runs"] is False
    first = {each["partition"]: each["registered_before_run"] for each in verdict["verdicts"]}
    assert first == {**dict.fromkeys(HELD_OUT, False), new: True}
    shown = summary(more, graph.verdict)["verdicts"]
    assert {key: each["registered_before_run"] for key, each in shown.items()} == first
    registered = more.json(graph.forecast, "forecast.json")["registered"]
    sentence = registration_sentence(registered, verdict["verdicts"])
    assert f"no forecasts: {', '.join(HELD_OUT)}; the other runs began later" in sentence
    text = more.store.artifact(graph.report).read("report.md").decode()
    assert sentence in text
    assert sentence in more.log
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    outcome = {row[0]: row[9] for row in rows if len(row) == 11 and row[0] in ("run", *first)}
    assert outcome == {"run": "forecast first", **dict.fromkeys(HELD_OUT, "no"), new: "yes"}


def test_the_check_of_forecasts_names_the_runs_that_came_first(lab: KnownLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_STORE", lab.store.root)
    assets = Lab(load_profile(str(lab.folder / "known.toml")))
    found = FORECAST_CAME_FIRST.result(assets, lab.graph.verdict)
    assert (found.passed, found.description, found.metadata["began_before_forecast"].value) == (True, None, [])
    retire(lab, lab.graph.forecast)
    for spec in (lab.graph.forecast, lab.graph.verdict):
        lab.build(spec)
    found = FORECAST_CAME_FIRST.result(assets, lab.graph.verdict)
    assert (found.passed, found.metadata["began_before_forecast"].value) == (False, HELD_OUT)
    assert found.description == f"The forecast was registered after these runs had begun: {', '.join(HELD_OUT)}."


def test_all_scores_of_all_runs_are_in_one_table(known_lab: KnownLab) -> None:
    evals = known_lab.table(known_lab.graph.evals, "evals.parquet")
    assert set(evals["partition"]) == {*known_lab.graph.cells, *HELD_OUT}
    assert set(evals.filter(pl.col("kind") == "held-out")["partition"]) == set(HELD_OUT)
    assert evals["tokens"].null_count() == evals["params"].null_count() == evals["flops"].null_count() == 0
    assert summary(known_lab, known_lab.graph.evals)["failed"] == [
        f"{DIVERGED} continuation: failed",
        f"{DIVERGED} perplexity: failed",
        f"{NOT_EVALUATED} continuation: failed",
    ]


def test_a_task_is_forecast_by_the_models_that_were_not_held_out(known_lab: KnownLab, task: dict[str, Any]) -> None:
    assert (task["evaluation"], task["status"], task["problems"]) == ("continuation", "forecast", [])
    assert task["models"] == len(known_lab.graph.cells) - 2
    assert len(task["compute_optimal"]) == 5
    assert task["metrics"] | {"soft": "choice_logprob", "hard": "acc", "sign": -1, "chance": 0.25} == task["metrics"]
    for each in task["forecasts"]:
        soft = SOFT_LAW.loss(each["flops"])
        assert each["soft"] == pytest.approx(-soft, rel=0.02)
        assert each["hard"] == pytest.approx(SIGMOID.hard(soft), abs=0.03)
        assert each["soft"] in Interval(**each["soft_interval"])
        assert each["hard"] in Interval(**each["hard_interval"])


def test_held_out_models_are_held_against_the_forecast_of_their_tasks(
    known_lab: KnownLab, task: dict[str, Any]
) -> None:
    assert [each["partition"] for each in task["comparisons"]] == HELD_OUT
    evals = known_lab.table(known_lab.graph.evals, "evals.parquet")
    for each in task["comparisons"]:
        mine = evals.filter(pl.col("partition") == each["partition"])
        (score,) = mine.filter(pl.col("metric") == "acc")["value"]
        assert each["actual_hard"] == score
        assert each["hard_error"] == pytest.approx(score - each["predicted_hard"])
        assert each["hard_inside_interval"] is True
        assert each["soft_inside_interval"] is True
    reasons = known_lab.json(known_lab.graph.downstream, "downstream.json")["without_forecast"]
    assert reasons == {"perplexity": "there is no hard metric, a fraction of right answers"}


def test_models_of_others_join_the_second_step(known_lab: KnownLab, task: dict[str, Any]) -> None:
    other = {"evaluation": "continuation", "model": "theirs", "soft": -0.75, "hard": SIGMOID.hard(0.75)}
    config = {**known_lab.graph.downstream.config, "external": [other, {**other, "evaluation": "another"}]}
    spec = dataclasses.replace(known_lab.graph.downstream, config=config)
    known_lab.build(spec)
    (found,) = known_lab.json(spec, "downstream.json")["evaluations"]
    assert (found["models"], found["soft_law"]) == (task["models"] + 1, task["soft_law"])
    rows = known_lab.table(spec, "downstream.parquet").filter(pl.col("kind") == "external")
    assert rows.select("name", "soft", "hard", "flops").rows() == [("theirs", -0.75, other["hard"], None)]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_table_is_described_and_links_each_run_to_its_page(known_lab: KnownLab, config: str) -> None:
    table = known_lab.table(known_lab.graph.dataset, f"{config}.parquet")
    (about,) = [each for each in known_lab.json(known_lab.graph.dataset, "figures.json") if each["config"] == config]
    assert (about["file"], about["rows"]) == (f"{config}.parquet", len(table))
    assert [column["name"] for column in about["columns"]] == table.columns
    assert all(column["meaning"] and column["type"] != "null" for column in about["columns"])
    run = "partition" if config == "evals" else "name"
    pages = {key: known_lab.wandb(key) for key in (*known_lab.graph.cells, *HELD_OUT)}
    named = [(name, url) for name, url in table.select(run, "wandb_url").iter_rows() if name in pages]
    assert named
    assert all(url == pages[name] for name, url in named)
    assert all(url is None for name, url in table.select(run, "wandb_url").iter_rows() if name not in pages)


def test_the_ladder_has_every_run_every_minimum_and_every_seed(known_lab: KnownLab) -> None:
    ladder = known_lab.table(known_lab.graph.dataset, "ladder.parquet")
    counts = dict(ladder.group_by("kind").len().iter_rows())
    assert counts == {"isoflop": len(known_lab.graph.cells), "optimum": 5, "held-out": 3}
    assert ladder.filter(pl.col("excluded").is_not_null())["name"].to_list() == [DIVERGED]
    assert "eval_code_bpb" not in COLUMNS  # named by its validation set, and described all the same


def test_curves_to_plot_are_the_fitted_ones(known_lab: KnownLab, constants: dict[str, Any]) -> None:
    law = known_lab.table(known_lab.graph.dataset, "scaling_law.parquet").filter(pl.col("kind") == "law")
    fitted = constants["loss_law"]
    expected = fitted["irreducible"] + fitted["coefficient"] * law["flops"] ** -fitted["exponent"]
    assert law["eval_loss"].to_list() == pytest.approx(expected.to_list(), rel=1e-9)
    assert (law["low"] <= law["high"]).all()
    curves = known_lab.table(known_lab.graph.dataset, "isoflop_curves.parquet")
    for row in constants["minima"]:
        mine = curves.filter((pl.col("kind") == "curve") & (pl.col("flops") == row["flops"]))
        assert mine["eval_loss"].min() == pytest.approx(row["loss"], abs=1e-3)


def test_a_loss_curve_ends_where_the_run_did(known_lab: KnownLab) -> None:
    curves = known_lab.table(known_lab.graph.dataset, "loss_curves.parquet")
    last = curves.group_by("name").agg(pl.col("tokens").max(), pl.len())
    for name, tokens, points in last.iter_rows():
        plan = known_lab.graph.run(name, known_lab.store).config["plan"]
        steps = plan["steps"] // 2 if name == DIVERGED else plan["steps"]
        assert tokens == steps * plan["batch_size"] * plan["seq_len"]
        assert points == min(steps, 500)


def test_each_task_has_its_figure(known_lab: KnownLab) -> None:
    figures = known_lab.store.artifact(known_lab.graph.figures)
    names = ["downstream_continuation", "isoflop", "scaling_law"]
    assert figures.record.summary["figures"] == names
    assert {file.path for file in figures.record.files} == {f"{n}.{kind}" for n in names for kind in ("png", "svg")}


def test_the_report_is_made_of_the_artifacts_sentences_and_figures(
    known_lab: KnownLab, constants: dict[str, Any], verdict: dict[str, Any]
) -> None:
    artifact = known_lab.store.artifact(known_lab.graph.report)
    text = artifact.read("report.md").decode()
    sentences = [law_sentence(constants), token_law_sentence(constants), *map(verdict_sentence, verdict["verdicts"])]
    assert all(sentence in text for sentence in sentences)
    assert all(sentence in known_lab.log for sentence in sentences)
    figures = known_lab.store.artifact(known_lab.graph.figures)
    for name in figures.record.summary["figures"]:
        assert f"]({name}.png)" in text
        assert artifact.read(f"{name}.png") == figures.read(f"{name}.png")


def test_the_report_s_tables_hold_the_artifacts_numbers(
    known_lab: KnownLab, constants: dict[str, Any], verdict: dict[str, Any], task: dict[str, Any]
) -> None:
    text = known_lab.store.artifact(known_lab.graph.report).read("report.md").decode()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    first = {tuple(row[:1]): row for row in reversed(rows)}
    assert {len(row) for row in rows} <= set(range(2, 12))
    for each in verdict["verdicts"]:
        row = first[(each["partition"],)]
        assert row[4] == f"{each['predicted_loss']:.4f}"
        assert row[6] == f"{each['actual_loss']:.4f}"
        assert row[7] == f"{each['error_percent']:+.2f} %"
        assert row[8:10] == ["yes" if each["inside_interval"] else "no", "yes"]
        assert row[10] == f"[W&B]({known_lab.wandb(each['partition'])})"
    assert first[(DIVERGED,)][1] == "diverged after 52 of 104 steps"
    refits = {row[0]: row for row in rows if len(row) == 6}
    for refit in constants["sensitivity"]:
        assert refits[refit["what"]][1:3] == [f"{refit['law']['irreducible']:.3f}", f"{refit['law']['exponent']:.4f}"]
    scores = [row[3] for row in rows if len(row) == 5 and row[0] in ("5.12e11", "1.024e12")]
    assert scores == [f"{each['hard']:.3f}" for each in task["forecasts"]]
    assert json.dumps(text) == json.dumps(text).replace("None", "")  # nothing that is missing is called None
