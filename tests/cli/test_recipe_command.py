"""`marin recipe` as a person or a script runs it: what it prints of a budget's candidates.

Two tests run the real command in a process of its own, the others the same command in this one, for speed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from marin_core.cli import cli
from marin_core.errors import MarinError
from tests.recipes.test_delphi import CELLS_PER_BUDGET, GRID, OPTIMA, OPTIMAL_RATES, WINNERS, like, same

MARIN = Path(sys.executable).with_name("marin")


def marin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `marin …` with nothing of this machine's lab in reach."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "DAGSTER_"))}
    own = {"MARIN_STATE": str(folder / "state"), "DAGSTER_HOME": str(folder / "dagster"), "COLUMNS": "160"}
    return subprocess.run(
        [MARIN, *arguments], env=inherited | own, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["recipe", *arguments])


def answer(*arguments: str) -> str:
    """What a successful command printed."""
    result = invoked(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def found(*arguments: str) -> Any:
    return json.loads(answer(*arguments, "--json"))


def rows(printed: str) -> list[list[str]]:
    """The rows of both printed tables, cell by cell."""
    return [line.split() for line in printed.splitlines() if re.match(r"\s*[\d.]+e\d+-d", line)]


def shapes(printed: str) -> list[list[str]]:
    """The rows of the first table: shapes and rates."""
    return [row for row in rows(printed) if "e-0" in row[6]]


@pytest.mark.parametrize(("budget", "cells"), CELLS_PER_BUDGET.items())
def test_every_fit_budget_has_the_published_number_of_runs(budget: float, cells: int) -> None:
    assert len(found(f"{budget:g}")) == cells


@pytest.mark.parametrize("budget", [3e18, 3e19, 3e20])
def test_a_published_grid_is_printed_to_the_digit_as_json(budget: float) -> None:
    published = [row for row in GRID if row[0] == budget]
    candidates = found(f"{budget:g}")
    names = ("flops", "hidden_dim", "num_layers", "batch_size", "params", "tokens", "steps")
    assert [tuple(c[name] for name in names) for c in candidates] == [row[:7] for row in published]
    for candidate, row in zip(candidates, published, strict=True):
        rates = [candidate[name] for name in ("learning_rate", "adam_lr", "epsilon")]
        assert [like(value, text) for value, text in zip(rates, row[7:], strict=True)] == [*map(same, row[7:])]


@pytest.mark.parametrize("budget", [3e18, 3e19, 3e20])
def test_a_published_grid_is_printed_to_four_digits_as_a_table(budget: float) -> None:
    printed = shapes(answer(f"{budget:g}"))
    for cells, row in zip(printed, [row for row in GRID if row[0] == budget], strict=True):
        _, width, layers, batch, params, tokens, steps, *rates = row
        assert cells[0].endswith(f"-d{width:04d}")
        assert [int(cell.replace(",", "")) for cell in cells[1:6]] == [layers, params, tokens, batch, steps]
        # The record has the rates to five digits; half a unit of the fourth is what rounding again may change.
        for cell, text in zip(cells[6:9], rates, strict=True):
            assert re.fullmatch(r"\d\.\d{3}e-\d\d", cell)
            assert float(cell) == pytest.approx(float(text), rel=0, abs=0.5001e-3 * 10 ** int(cell[-3:]))
        assert re.fullmatch(r"0\.9\d{3}", cells[9])


@pytest.mark.parametrize("row", WINNERS, ids=lambda row: f"{row[0]:g}")
def test_the_published_winner_of_a_budget_is_among_its_rows(row: tuple[Any, ...]) -> None:
    budget, width, layers, heads, params, tokens, batch_size, steps, learning_rate = row
    (winner,) = [c for c in found(f"{budget:g}") if c["hidden_dim"] == width]
    names = ("num_layers", "num_heads", "params", "tokens", "batch_size", "steps")
    assert tuple(winner[name] for name in names) == (layers, heads, params, tokens, batch_size, steps)
    assert like(winner["learning_rate"], learning_rate) == same(learning_rate)


@pytest.mark.parametrize("row", OPTIMA, ids=lambda row: f"{row[0]:g}")
def test_the_recommended_run_of_a_budget_is_the_published_one(row: tuple[Any, ...]) -> None:
    budget, best_tokens, width, layers, heads, params, _, batch_size, steps = row
    run = found(f"{budget:g}", "--optimal")
    names = ("hidden_dim", "num_layers", "num_heads", "params", "batch_size", "steps")
    assert tuple(run[name] for name in names) == (width, layers, heads, params, batch_size, steps)
    assert like(run["optimal_tokens"], best_tokens) == same(best_tokens)
    assert run["token_law"]["source"] == "published with recipe delphi, version adamh_scaling_v6"


@pytest.mark.parametrize(("budget", "learning_rate", "adam_lr", "epsilon", "beta2"), OPTIMAL_RATES)
def test_the_recommended_run_has_the_published_rates(
    budget: float, learning_rate: str, adam_lr: str, epsilon: str, beta2: str
) -> None:
    run = found(f"{budget:g}", "--optimal")
    for name, text in [("learning_rate", learning_rate), ("adam_lr", adam_lr), ("epsilon", epsilon), ("beta2", beta2)]:
        assert like(run[name], text) == same(text)


@pytest.mark.parametrize(
    ("budget", "seeds", "tokens", "batch", "steps"),
    [
        ("1e21", ["0", "42", "62746"], "46,256,881,664", "512", "22,057"),
        ("1e22", ["0", "42", "62746"], "160,369,213,440", "1,024", "38,235"),
        ("1e23", ["0"], "628,172,521,472", "2,048", "74,884"),
    ],
)
def test_a_held_out_budget_has_a_row_for_every_published_seed(
    budget: str, seeds: list[str], tokens: str, batch: str, steps: str
) -> None:
    printed = shapes(answer(budget, "--optimal"))
    assert [row[-1] for row in printed] == seeds
    assert [row[3:6] for row in printed] == [[tokens, batch, steps]] * len(seeds)
    run = found(budget, "--optimal")
    assert run["seeds"] == [int(seed) for seed in seeds]
    assert run["z_loss_weight"] == 0.0


def test_a_candidate_s_json_has_its_plan_its_name_and_what_it_needs() -> None:
    winner = found("3e18")[-1]
    assert (winner["run"], winner["run_name"]) == ("3e18-d1024", "isoflop-3e+18-d1024-L11-B8-adamh_scaling_v6")
    assert (winner["recipe"], winner["recipe_version"], winner["beta1"]) == ("delphi", "adamh_scaling_v6", 0.9)
    assert (winner["mlp_dim"], winner["vocab_size"], winner["z_loss_weight"]) == (4096, 128_256, 1e-7)
    asked = winner["needs"]
    # By hand: 2 · (12 bytes a parameter, 8 layers of 18 bytes a value, the embedding twice).
    memory = 2 * (12 * 447_244_032 + 8 * (8 * 4096 * 1024 * 18) + 2 * 128_256 * 1024)
    assert asked["hbm_gib"] == pytest.approx(memory / 2**30, rel=1e-12)
    # A v4-8 has 4 chips of 32 GiB and 275 TFLOP/s.
    assert (asked["pool"], asked["chips"], asked["tensor_parallel"]) == ("v4-8", 4, 1)
    assert asked["hbm_gib_per_chip"] == pytest.approx(memory / 2**30 / 4)
    assert asked["chip_hours"] == pytest.approx(3e18 / (275e12 * 0.4) / 3600)
    assert asked["hours"] == pytest.approx(asked["chip_hours"] / 4)


def test_hardware_can_be_chosen() -> None:
    run = found("1e22", "--optimal", "--family", "v5p", "--mfu", "0.5")["needs"]
    assert run["chip_hours"] == pytest.approx(1e22 / (459e12 * 0.5) / 3600)
    # 156 chips of 95 GiB would have the memory; 256 are the fewest that can share 1024 sequences as well.
    assert 155 * 95 < run["hbm_gib"] < 156 * 95
    assert (run["pool"], run["chips"], run["tensor_parallel"]) == ("v5p-512", 256, 1)
    small = found("1e22", "--optimal", "--pool", "v4-512")["needs"]
    assert (small["chips"], small["hbm_gib_available"]) == (256, 32)
    assert small["hbm_gib_per_chip"] > 32
    assert "! The published launches would have taken a larger pool" in answer("1e22", "--optimal", "--pool", "v4-512")


def test_a_run_that_no_pool_can_hold_says_so() -> None:
    printed = answer("1e24", "--optimal", "--family", "v5e")
    assert "none: No v5e pool has the memory and can share the batch" in printed
    assert found("1e24", "--optimal", "--family", "v5e")["needs"]["pool"] is None


def test_both_tables_are_readable_at_120_columns() -> None:
    for budget in ("1.8e19", "1e23"):
        assert max(map(len, answer(budget).splitlines())) <= 120
    assert "…" not in answer("1e23")


def test_a_superseded_version_is_printed_as_such() -> None:
    printed = answer("3e20", "--version", "adamh_scaling_v5")
    (row,) = [row for row in shapes(printed) if row[0] == "3e20-d2048"]
    assert row[6:9] == ["4.483e-03", "7.382e-05", "4.110e-08"]
    assert printed.endswith("version adamh_scaling_v5 is superseded by adamh_scaling_v6\n")
    assert "superseded" not in answer("3e20")


def test_the_laptop_s_recipe_can_be_asked() -> None:
    candidates = found("8e11", "--recipe", "nano")
    assert len(candidates) >= 5
    assert {c["flops"] for c in candidates} == {8e11}


def test_the_real_command_prints_the_published_optimum_and_writes_nothing(tmp_path: Path) -> None:
    result = marin(tmp_path, "recipe", "1e21", "--optimal", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    run = json.loads(result.stdout)
    assert (run["hidden_dim"], run["batch_size"], run["tokens"]) == (2560, 512, 46_256_881_664)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_served_is_one_line_on_stderr(tmp_path: Path) -> None:
    result = marin(tmp_path, "recipe", "1e15")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: budget 1e15 FLOPs admits no run of recipe 'delphi'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("1e30",), "budget 1e30 FLOPs admits no run of recipe 'delphi'"),
        (("1e6", "--recipe", "nano"), "budget 1e6 FLOPs admits no run of recipe 'nano'"),
        (("0",), "budget 0.0 is not a positive number of FLOPs"),
        (("nan",), "budget nan is not a positive number of FLOPs"),
        (("inf",), "budget inf is not a positive number of FLOPs"),
        (("--", "-1"), "budget -1.0 is not a positive number of FLOPs"),
        (("8e11", "--recipe", "nano", "--optimal"), "recipe 'nano' has no published token law"),
        (
            ("3e18", "--version", "adamh_scaling_v5", "--optimal"),
            "recipe 'delphi' has no published token law of version adamh_scaling_v5, which is superseded; leave --opt",
        ),
        (("3e18", "--family", "v9"), "no pools of family 'v9'; there are v4, v5e, v5p"),
        (("3e18", "--pool", "v4-9"), "unknown pool 'v4-9'; did you mean v4-8, v4-16"),
        (("3e18", "--pool", "cpu-8"), "pool cpu-8 has no HBM and no known peak"),
        (("3e18", "--profile", "nobody"), "unknown profile 'nobody'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wish_that_cannot_be_served_is_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    result = invoked(*arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, MarinError)
    assert str(result.exception).startswith(complaint)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("abc",), "'abc' is not a number of FLOPs; give one like 3e18"),
        (("-1",), "No such option"),
        ((), "Missing argument 'BUDGET'"),
        (("9e18", "--recipe", "pythia"), "'pythia' is not one of"),
        (("9e18", "--version", "adamh_scaling_v7"), "'adamh_scaling_v7' is not one of"),
        (("9e18", "--recipe", "nano", "--version", "adamh_scaling_v5"), "recipe nano has no version adamh_scaling_v5"),
        (("9e18", "--recipe", "nano", "--profile", "laptop"), "a profile has its own recipe"),
        (("9e18", "--optimal", "--law", "fitted"), "name its profile with --profile"),
        (("9e18", "--out", "plan.json"), "--law, --seed and --out are about the recommended run"),
        (("9e18", "--seed", "3"), "--law, --seed and --out are about the recommended run"),
        (("9e18", "--optimal", "--force"), "--force is about the file that --out names"),
        (("9e18", "--markdown", "--json"), "two ways to print"),
        (("9e18", "--mfu", "0"), "0.0 is not in the range 0<x<=1"),
        (("9e18", "--mfu", "nan"), "--mfu is nan; give a share of the peak, up to 1"),
        (("9e18", "--family", "v5p", "--pool", "v4-8"), "give --family or --pool"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_that_is_not_understood_says_how_it_is_used(arguments: tuple[str, ...], complaint: str) -> None:
    result = invoked(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: ")
    assert complaint in result.stderr
