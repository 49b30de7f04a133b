"""`marin ladder check` on ladders with something wrong, and on the shipped ones, with nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from marin_core.cli import cli
from marin_core.cli.ladder_report import LEAST_BUDGETS
from marin_core.errors import MarinError
from marin_core.scaling.laws import MIN_BUDGETS
from tests.cli.fitted import commit_law

MARIN = Path(sys.executable).with_name("marin")
LADDER = """
extends = "laptop"

[scale]
fit_budgets = [1e11, 2e11, 4e11, 8e11]
heldout_budgets = [3.2e12]

[scale.recipe]
base = "nano"
name = "mine"
version = "mine_v1"
"""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, and commands that run beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("MARIN_PROFILE", raising=False)
    return tmp_path / "store"


def ladder(folder: Path, old: str = "", new: str = "", constants: str = "") -> str:
    """A ladder of one's own in a file, with a change."""
    assert old in LADDER
    (folder / "mine.toml").write_text(LADDER.replace(old, new) + constants)
    return "mine.toml"


def check(profile: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["ladder", "check", "--profile", profile, "--json"])
    report = json.loads(result.stdout)
    assert (report["problems"] > 0) == isinstance(result.exception, MarinError)
    return report


def findings(report: dict[str, Any], kind: str) -> list[tuple[float | None, str]]:
    return [(found["budget"], found["text"]) for found in report["findings"] if found["kind"] == kind]


def test_the_published_ladder_has_its_seven_budgets_and_no_problem() -> None:
    report = check("delphi")
    assert [len(budget["cells"]) for budget in report["budgets"]] == [5, 10, 15, 9, 14, 13, 12]
    assert report["problems"] == 0
    assert [budget["optimum"] for budget in report["budgets"]] == ["edge", *["inside"] * 6]
    limits = {key: names for budget in report["budgets"] for key, names in budget["at_limits"].items()}
    assert limits["3e18-d1024"] == ["smallest batch"]
    assert limits["9e19-d0768"] == ["tokens-per-parameter limit"]
    assert limits["3e20-d4096"] == ["parameter limit"]
    assert len(limits) == 20


def test_the_laptop_s_ladder_has_no_problem_and_rounds_its_batches_alike() -> None:
    report = check("laptop")
    assert report["problems"] == 0
    assert report["token_law"] is None
    assert not [text for _, text in findings(report, "warning") if "batches round" in text]


def test_a_budget_of_few_runs_is_a_problem(tmp_path: Path) -> None:
    report = check(ladder(tmp_path, constants="min_width = 32\n"))
    problems = findings(report, "problem")
    assert [budget for budget, _ in problems] == [1e11, 2e11, 4e11, 8e11]
    assert problems[0][1].startswith("3 cells are too few for a curve, which takes 4")


@pytest.mark.parametrize(("budgets", "problems"), [("[4e11, 8e11]", 1), ("[2e11, 4e11, 8e11]", 0)])
def test_fewer_budgets_than_a_loss_law_takes_are_a_problem(tmp_path: Path, budgets: str, problems: int) -> None:
    assert LEAST_BUDGETS == MIN_BUDGETS
    found = findings(check(ladder(tmp_path, "[1e11, 2e11, 4e11, 8e11]", budgets)), "problem")
    told = "2 fit budgets are too few for a loss law, which takes 3; add to fit_budgets"
    assert found == [(None, told)] * problems


def test_a_budget_that_admits_no_run_is_one_of_no_cells(tmp_path: Path) -> None:
    report = check(ladder(tmp_path, "fit_budgets = [1e11,", "fit_budgets = [1e3,"))
    assert findings(report, "problem") == [
        (1e3, "0 cells are too few for a curve, which takes 4; widen the recipe's widths, batches or limits, or choose "
         "another budget")
    ]  # fmt: skip


def test_a_held_out_budget_that_is_fitted_or_admits_no_run_is_a_problem(tmp_path: Path) -> None:
    report = check(ladder(tmp_path, "[3.2e12]", "[3.2e12, 8e11, 1e20]"))
    problems = findings(report, "problem")
    assert [budget for budget, _ in problems] == [8e11, 1e20]
    assert "not above the largest fit budget, 8e11" in problems[0][1]
    assert "held out: budget 1e20 FLOPs admits no run of recipe 'mine'" in problems[1][1]


def test_a_vocabulary_that_differs_is_a_problem(tmp_path: Path) -> None:
    report = check(ladder(tmp_path, constants="vocab_size = 4000\n"))
    ((budget, text),) = findings(report, "problem")
    assert budget is None
    assert "a vocabulary of 4,000, tokenizer nano has 4,096" in text


def test_budgets_that_do_not_double_round_their_batches_differently(tmp_path: Path) -> None:
    report = check(ladder(tmp_path, "4e11, 8e11]", "4e11, 6e11]"))
    ((budget, text),) = [found for found in findings(report, "warning") if "batches round" in found[1]]
    assert budget == 6e11
    assert text.startswith("batches round differently than at 4e11: at width 16 ")
    assert "5 of 5 widths differ" in text


def test_rates_at_their_cap_and_beta2_at_its_floor_are_warnings(tmp_path: Path) -> None:
    constants = "min_batch_size = 8\n[scale.recipe.hparams]\nlearning_rate_cap = 0.1\nreference_beta2 = 0.93\n"
    warned = dict.fromkeys(
        text.split(":")[0] for _, text in findings(check(ladder(tmp_path, constants=constants)), "warning")
    )
    assert {"at the Adam-rate cap of 0.1", "at the beta2 floor of 0.9", "at the smallest batch of 8"} <= set(warned)


@pytest.mark.parametrize(
    ("tokens", "kind", "said"),
    [
        (5e5, "warning", "is at the edge of the grid's 4.49e+05 to 1.8e+06"),
        (9e5, None, ""),
        (9e6, "problem", "is outside the grid's 4.49e+05 to 1.8e+06: the minimum would be extrapolated"),
    ],
)
def test_an_optimum_by_the_fitted_law_is_looked_for_in_the_grid(
    tmp_path: Path, tokens: float, kind: str | None, said: str
) -> None:
    profile = ladder(tmp_path, "[1e11, 2e11, 4e11, 8e11]", "[8e11]")
    commit_law(profile, {"coefficient": tokens, "exponent": 0.0})
    report = check(profile)
    assert report["token_law"]["source"].startswith("fitted to the suite of profile mine")
    placed = [found for found in report["findings"] if "the law's optimum" in found["text"]]
    assert [found["kind"] for found in placed] == ([kind] if kind else [])
    assert all(said in found["text"] for found in placed)


def test_the_real_command_prints_every_budget_and_fails_where_there_is_a_problem(tmp_path: Path) -> None:
    arguments = [MARIN, "ladder", "check", "--profile", ladder(tmp_path, constants="min_width = 32\n")]
    environment = {**os.environ, "MARIN_STATE": str(tmp_path / "state"), "DAGSTER_HOME": str(tmp_path / "dagster")}
    result = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    assert result.stderr == "Error: the ladder of profile mine.toml has 4 problems; each says above what to do\n"
    assert result.stdout.startswith("ladder of profile mine: recipe mine, version mine_v1\nno token law is known")
    assert result.stdout.count("✗ problem: ") == 4
    assert max(map(len, result.stdout.splitlines())) <= 120
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml"]
