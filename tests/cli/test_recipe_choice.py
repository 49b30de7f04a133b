"""`marin recipe … --optimal`: by which law a run is chosen, the plan that is written, and why it was chosen."""

import json
import re
from pathlib import Path

import pytest

from marin_core.errors import MarinError
from marin_core.profile import load_profile
from marin_core.recipes import DELPHI, NANO, TrainPlan
from tests.cli.fitted import commit_law
from tests.cli.test_recipe_command import answer, invoked

# A law of which the optimum of 8e11 FLOPs is 500 000 tokens, between the runs of widths 40 and 48.
LAW = {"coefficient": 5e5 / 8e11**0.5, "exponent": 0.5}
PROFILES = {
    "mine": 'extends = "laptop"\n',
    "published": 'extends = "delphi"\n[scale]\nfit_budgets = [3e18]\n',
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two profiles and a store; commands run in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_STORE", str(tmp_path / "store"))
    for name, text in PROFILES.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def refusal(*arguments: str) -> str:
    """The one line of a command that fails."""
    result = invoked(*arguments)
    assert isinstance(result.exception, MarinError)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_the_law_of_a_finished_suite_chooses_the_run(lab: Path) -> None:
    fingerprint = commit_law("mine.toml", LAW)
    run = json.loads(answer("8e11", "--profile", "mine.toml", "--optimal", "--json"))
    tokens = {c.hidden_dim: c.tokens for c in NANO.candidates(8e11)}
    assert tokens[48] < 5e5 < tokens[40] == run["tokens"]
    assert run["optimal_tokens"] == pytest.approx(5e5)
    assert run["token_law"]["source"] == f"fitted to the suite of profile mine (delphi/scaling_law, {fingerprint})"
    assert run["eval_sequences"] == load_profile("laptop").scale.eval_sequences


def test_a_suite_that_is_not_finished_is_told_with_the_command_that_finishes_it(lab: Path) -> None:
    said = refusal("8e11", "--profile", "mine.toml", "--optimal")
    assert said.endswith("fit it with MARIN_PROFILE=mine.toml dagster asset materialize --select 'delphi/*'")
    assert "or give --law published" in refusal("1e21", "--profile", "published.toml", "--optimal")


def test_where_there_are_two_laws_it_is_said_which_was_used(lab: Path) -> None:
    commit_law("published.toml", {"coefficient": 0.03, "exponent": 0.58})
    fitted = answer("1e21", "--profile", "published.toml", "--optimal")
    assert "law: D* = 0.03 · C^0.5800, fitted to the suite of profile published" in fitted
    assert "; the published one says 4.06e+10 (--law published)" in fitted
    published = answer("1e21", "--profile", "published.toml", "--optimal", "--law", "published")
    assert "law: D* = 0.02672 · C^0.5801, published with recipe delphi, version adamh_scaling_v6: 4.06e+10" in published


def test_the_candidates_of_a_profile_s_recipe_need_no_store(lab: Path) -> None:
    found = json.loads(answer("8e11", "--profile", "mine.toml", "--json"))
    assert [c["hidden_dim"] for c in found] == [c.hidden_dim for c in NANO.candidates(8e11)]
    assert not (lab / "store").exists()


def test_the_plan_that_is_written_is_all_of_it(lab: Path) -> None:
    printed = answer("3e20", "--optimal", "--out", "plan.json")
    plan = TrainPlan.from_json(json.loads((lab / "plan.json").read_text()))
    assert plan == TrainPlan.of(DELPHI, DELPHI.optimal(3e20), eval_sequences=4096, seed=0)
    config = json.dumps({"ops": {"plan__checkpoint": {"config": {"plan": str(lab / "plan.json")}}}})
    # Without a profile the laptop's mixture would be built, whose vocabulary is another.
    assert printed.endswith(
        "this trains it (or with MARIN_PROFILE=gke):\n"
        f"MARIN_PROFILE=delphi dagster asset materialize --select plan/checkpoint --config-json '{config}'\n"
    )
    assert sorted(path.name for path in lab.iterdir()) == ["mine.toml", "plan.json", "published.toml"]


def test_the_command_that_trains_a_plan_is_of_an_asset_that_there_is() -> None:
    from marin_assets.definitions import defs

    (asset,) = [a for a in defs.assets or [] if "plan/checkpoint" in {k.to_user_string() for k in a.keys}]  # pyright: ignore
    assert asset.op.name == "plan__checkpoint"  # pyright: ignore


def test_a_plan_of_a_profile_has_its_evaluations_and_says_under_which_profile_to_train_it(lab: Path) -> None:
    commit_law("mine.toml", LAW)
    printed = answer("8e11", "--profile", "mine.toml", "--optimal", "--out", "plan.json", "--seed", "5")
    plan = TrainPlan.from_json(json.loads((lab / "plan.json").read_text()))
    assert (plan.recipe, plan.hidden_dim, plan.eval_sequences, plan.seed) == ("nano", 40, 128, 5)
    assert "\nMARIN_PROFILE=mine.toml dagster asset materialize --select plan/checkpoint" in printed


def test_of_several_seeds_the_first_is_planned_unless_another_is_named(lab: Path) -> None:
    answer("1e21", "--optimal", "--out", "first.json")
    answer("1e21", "--optimal", "--out", "named.json", "--seed", "42")
    first, named = (TrainPlan.from_json(json.loads((lab / f).read_text())) for f in ("first.json", "named.json"))
    assert (first.seed, named.seed) == (0, 42)
    assert first.optimizer == named.optimizer
    assert (first.batch_size, first.optimizer.z_loss_weight) == (512, 0.0)


def test_a_file_that_holds_something_else_is_kept_unless_forced(lab: Path) -> None:
    (lab / "plan.json").write_text("mine")
    assert refusal("3e20", "--optimal", "--out", "plan.json").startswith("plan.json holds something else")
    assert (lab / "plan.json").read_text() == "mine"
    answer("3e20", "--optimal", "--out", "plan.json", "--force")
    written = (lab / "plan.json").read_text()
    answer("3e20", "--optimal", "--out", "plan.json")
    assert (lab / "plan.json").read_text() == written
    assert "holds something else" in refusal("1e20", "--optimal", "--out", "plan.json")
    for folder in ("nowhere", "plan.json"):
        assert "cannot be written" in refusal("3e20", "--optimal", "--out", f"{folder}/plan.json")


def test_beside_json_the_command_that_trains_it_goes_to_stderr(lab: Path) -> None:
    result = invoked("3e20", "--optimal", "--json", "--out", "plan.json")
    assert json.loads(result.stdout)["hidden_dim"] == 2048
    assert "dagster asset materialize --select plan/checkpoint" in result.stderr


def numbers(text: str) -> set[str]:
    return set(re.findall(r"[\d,]*\d", text))


def test_the_explanation_of_a_held_out_run_has_its_numbers() -> None:
    told = answer("1e21", "--markdown")
    assert told.startswith("# 1e21 FLOPs: `1e21-d2560` of recipe delphi, version adamh_scaling_v6\n")
    assert "| `1e21-d2560` | 26 | 3,383,110,656 | 46,256,881,664 | 1.14 | 256 | 44,114 | chosen |" in told
    assert told.count("| chosen |") == 1
    # Its neighbours in the grid, and why not they.
    assert "- Not `1e21-d2816`, the next larger model: its 36,521,902,080 tokens are 89.9 % of D*, too few." in told
    assert "- Not `1e21-d2304`, the next smaller model: its 62,057,873,408 tokens are 152.8 % of D*, more" in told
    assert "need 172.3 sequences a step; the next power of two is 256. That gives 44,114 steps." in told
    assert "have 512 sequences a step, not the grid's 256: 22,057 steps, 46,256,881,664 tokens." in told
    assert "0.0063 · √(512/64) · (2.5e+09/46,256,881,664)^0.3) = 7.425e-03" in told
    assert "z-loss weight 0 (held-out runs of this budget; the rule's is 1e-07)" in told
    assert "Trained once for each of 0, 42, 62746." in told


def test_the_rates_that_an_explanation_derives_are_what_its_formulas_give() -> None:
    for budget in ("1e21", "3e20", "1e23"):
        told = answer(budget, "--markdown")
        formulas = re.findall(r"min\(0\.01, (.*)\) = (\S+)$", told, flags=re.MULTILINE)
        assert len(formulas) == 2
        for formula, result in formulas:
            expression = re.sub(r"√\(", "sqrt(", formula.replace(",", "").replace("·", "*").replace("^", "**"))
            value = eval(expression, {"sqrt": lambda x: x**0.5})  # the test's own text, after the command's
            assert f"{value:.3e}" == result


def test_the_explanation_of_a_budget_between_has_no_override_and_one_seed() -> None:
    told = answer("3e20", "--markdown", "--seed", "7")
    assert "Held-out runs" not in told
    assert "Trained once, with seed 7." in told
    run = DELPHI.optimal(3e20)
    assert f"{run.params:,} parameters ({run.num_layers} layers of width {run.hidden_dim}" in told


def test_where_no_candidate_has_as_many_tokens_as_the_law_asks_it_says_so(lab: Path) -> None:
    commit_law("mine.toml", {"coefficient": 1e9, "exponent": 0.0})
    told = answer("8e11", "--profile", "mine.toml", "--markdown")
    assert "Chosen is the recipe's candidate with the most tokens, for none has as many: `8e11-d0016`" in told
    assert "the next smaller model" not in told
