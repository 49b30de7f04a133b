"""`marin recipe` as a person or a script runs it: the real command in a process of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MARIN = Path(sys.executable).with_name("marin")
FIELDS = {
    "flops",
    "hidden_dim",
    "num_layers",
    "num_heads",
    "batch_size",
    "seq_len",
    "steps",
    "tokens",
    "params",
    "learning_rate",
    "adam_lr",
    "epsilon",
    "beta2",
}


def marin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `marin …` with nothing of this machine's lab in reach."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "DAGSTER_"))}
    own = {"MARIN_STATE": str(folder / "state"), "DAGSTER_HOME": str(folder / "dagster"), "COLUMNS": "160"}
    return subprocess.run(
        [MARIN, *arguments], env=inherited | own, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def answer(folder: Path, *arguments: str) -> str:
    """What a successful command printed."""
    result = marin(folder, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def table(printed: str) -> list[list[str]]:
    """The rows of a printed table of candidates, cell by cell."""
    return [line.split() for line in printed.splitlines() if re.match(r"\s*[\d.]+e\d+-d", line)]


def test_the_candidates_of_a_budget_are_a_json_list(tmp_path: Path) -> None:
    found = json.loads(answer(tmp_path, "recipe", "9e18", "--json"))
    assert [c["hidden_dim"] for c in found] == [512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1664]
    assert [set(c) for c in found] == [FIELDS] * 10
    assert {type(value) for c in found for value in c.values()} == {int, float}


def test_a_candidate_s_json_has_the_published_numbers(tmp_path: Path) -> None:
    (found,) = [c for c in json.loads(answer(tmp_path, "recipe", "9e18", "--json")) if c["hidden_dim"] == 1152]
    rates = {name: found.pop(name) for name in ("learning_rate", "adam_lr", "epsilon", "beta2")}
    assert found == {
        "flops": 9e18,
        "hidden_dim": 1152,
        "num_layers": 12,
        "num_heads": 9,
        "batch_size": 16,
        "seq_len": 4096,
        "steps": 44_317,
        "tokens": 2_904_358_912,
        "params": 550_337_664,
    }
    assert rates == pytest.approx(
        {"learning_rate": 3.0115e-3, "adam_lr": 3.0431e-4, "epsilon": 3.988e-8, "beta2": 0.9999}, rel=1e-4
    )


def test_the_optimal_run_is_one_json_object_with_the_batch_that_was_used(tmp_path: Path) -> None:
    found = json.loads(answer(tmp_path, "recipe", "1e21", "--optimal", "--json"))
    assert set(found) == FIELDS
    assert (found["hidden_dim"], found["batch_size"], found["tokens"]) == (2560, 512, 46_256_881_664)


def test_the_laptop_s_recipe_can_be_asked(tmp_path: Path) -> None:
    found = json.loads(answer(tmp_path, "recipe", "8e11", "--recipe", "nano", "--json"))
    assert len(found) >= 5
    assert [set(c) for c in found] == [FIELDS] * len(found)
    assert {c["flops"] for c in found} == {8e11}


def test_without_json_the_candidates_are_a_table(tmp_path: Path) -> None:
    rows = table(answer(tmp_path, "recipe", "9e18"))
    assert len(rows) == 10
    assert rows[5][:8] == ["9e18-d1152", "12", "550.3M", "2.904B", "16", "44317", "0.00301", "0.000304"]


@pytest.mark.parametrize(("budget", "beta2"), [("9e18", "0.9999"), ("1e21", "0.9992")])
def test_the_table_shows_beta2_with_the_digits_that_matter(tmp_path: Path, budget: str, beta2: str) -> None:
    (best,) = table(answer(tmp_path, "recipe", budget, "--optimal"))
    assert best[-1] == beta2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("1e15",), "budget 1e15 FLOPs admits no run of recipe 'delphi'"),
        (("1e30",), "budget 1e30 FLOPs admits no run of recipe 'delphi'"),
        (("1e6", "--recipe", "nano"), "budget 1e6 FLOPs admits no run of recipe 'nano'"),
        (("0",), "budget 0.0 is not a positive number of FLOPs"),
        (("nan",), "budget nan is not a positive number of FLOPs"),
        (("inf",), "budget inf is not a positive number of FLOPs"),
        (("--", "-1"), "budget -1.0 is not a positive number of FLOPs"),
        (("8e11", "--recipe", "nano", "--optimal"), "recipe 'nano' has no published token law"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_budget_that_cannot_be_served_is_one_line_on_stderr(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    result = marin(tmp_path, "recipe", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {complaint}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("abc",), "'abc' is not a number of FLOPs; give one like 3e18"),
        (("-1",), "No such option"),
        ((), "Missing argument 'BUDGET'"),
        (("9e18", "--recipe", "pythia"), "'pythia' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_that_is_not_understood_says_how_it_is_used(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    result = marin(tmp_path, "recipe", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: marin recipe ")
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_asking_for_a_recipe_writes_nothing(tmp_path: Path) -> None:
    answer(tmp_path, "recipe", "9e18")
    assert list(tmp_path.iterdir()) == []
