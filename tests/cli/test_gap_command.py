"""`marin eval gap`: two models of a finished lab, compared without running them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from marin_core.cli import cli
from marin_core.errors import MarinError
from tests.conftest import LabEnvironment

TINY = str(Path(__file__).parents[1] / "profiles" / "tiny.toml")
SMALL, LARGE = "8e9-d0008", "3.2e10-d0024"


@pytest.mark.slow
def test_it_says_by_how_much_the_better_model_is_better_and_where(finished_lab: LabEnvironment) -> None:
    result = finished_lab.run("marin", "eval", "gap", LARGE, SMALL, "--top", "3", "--json")
    assert result.returncode == 0, result.stderr
    gap = json.loads(result.stdout)
    sets = {row["name"]: row for row in gap["sets"]}
    assert set(sets) == {"code", "prose", "math", "language_reference"}
    for row in sets.values():
        # Four times the compute: better on every set, by more than chance.
        assert row["gap"] == pytest.approx(row["first"] - row["second"])
        assert row["gap"] < -3 * row["stderr"] < 0
    assert {row["name"] for row in gap["overall"]} == {"micro", "macro"}
    assert sum(row["bytes"] for row in gap["kinds"]) == sum(row["bytes"] for row in sets.values())
    assert len([span for span in gap["spans"] if span["bits"] < 0]) == 3
    assert all(f"[{span['text']}]" in span["context"] for span in gap["spans"])


@pytest.mark.slow
def test_a_run_that_is_none_is_one_line(finished_lab: LabEnvironment) -> None:
    result = finished_lab.run("marin", "eval", "gap", LARGE, "3e18-d1024")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: no run '3e18-d1024' in profile tiny; there are 8e9-d0008, ")
    assert result.stderr.count("\n") == 1


def test_a_run_that_was_not_evaluated_is_told_with_the_command_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_STORE", str(tmp_path / "store"))
    result = CliRunner().invoke(cli, ["eval", "gap", LARGE, SMALL, "--profile", TINY])
    assert isinstance(result.exception, MarinError)
    assert str(result.exception) == (
        f"run {LARGE} is not evaluated; materialize it with: "
        f"dagster asset materialize --select evals/delphi --partition {LARGE}"
    )
