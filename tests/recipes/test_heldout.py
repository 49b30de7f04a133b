"""What held-out runs have of their own: data, applied to the grid's runs."""

import dataclasses
import json
from pathlib import Path

import pytest

from marin_core.errors import MarinError
from marin_core.profile import load_profile
from marin_core.recipes import DELPHI, NANO, HeldOutRun, RecipeError, ScalingRecipe, TokenLaw

LADDER = """
extends = "laptop"

[scale.recipe]
base = "nano"
name = "mine"
version = "mine_v1"

[scale.recipe.heldout_runs]
3.2e12 = {}
"""


def nano_with(run: HeldOutRun) -> ScalingRecipe:
    return dataclasses.replace(NANO, heldout_runs={3.2e12: run})


def test_only_what_is_said_replaces_what_the_recipe_chooses() -> None:
    cell = NANO.candidate(3.2e12, 64)
    assert nano_with(HeldOutRun()).as_published(cell) == cell
    assert nano_with(HeldOutRun(seeds=(1, 2))).as_published(cell) == cell
    quiet = nano_with(HeldOutRun(z_loss_weight=0.5)).as_published(cell)
    assert quiet == dataclasses.replace(cell, optimizer=dataclasses.replace(cell.optimizer, z_loss_weight=0.5))


def test_a_batch_of_its_own_changes_steps_and_settings_and_no_other_budget() -> None:
    recipe, cell = nano_with(HeldOutRun(batch_size=8)), NANO.candidate(3.2e12, 64)
    found = recipe.as_published(cell)
    assert (found.batch_size, found.hidden_dim) == (8, cell.hidden_dim)
    assert abs(found.tokens - cell.tokens) <= 8 * recipe.seq_len
    assert found.optimizer == NANO.hparams.at(8, found.tokens)
    other = NANO.candidate(8e11, 24)
    assert recipe.as_published(other) == other
    assert recipe.seeds(3.2e12) == ()


def test_the_published_runs_survive_json_to_the_digit() -> None:
    data = json.loads(json.dumps(DELPHI.to_json()))
    assert data["heldout_runs"]["1e21"] == {"batch_size": 512, "seeds": [0, 42, 62746], "z_loss_weight": 0.0}
    assert ScalingRecipe.from_json(data).heldout_runs == DELPHI.heldout_runs


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"batch_size": 0}, "batch_size is 0; give at least 1 sequence"),
        ({"seeds": (1, 1)}, "seeds are 1, 1; give different ones, from 0"),
        ({"seeds": (-1,)}, "seeds are -1; give different ones, from 0"),
        ({"z_loss_weight": -1.0}, "z_loss_weight is -1; give 0 or more"),
        ({"z_loss_weight": float("nan")}, "z_loss_weight is nan; give 0 or more"),
    ],
)
def test_values_that_no_run_can_have_are_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        HeldOutRun(**values)  # pyright: ignore[reportArgumentType]


def ladder(folder: Path, runs: str) -> str:
    file = folder / "mine.toml"
    file.write_text(LADDER.replace("3.2e12 = {}", runs))
    return str(file)


def test_a_ladder_of_one_s_own_says_them_in_its_file(tmp_path: Path) -> None:
    recipe = load_profile(ladder(tmp_path, '"3.2e12" = { batch_size = 16, seeds = [0, 7] }')).scale.recipe
    assert recipe.heldout_runs == {3.2e12: HeldOutRun(batch_size=16, seeds=(0, 7))}
    assert recipe.seeds(3.2e12) == (0, 7)


def test_a_fork_has_none_of_what_was_published_for_its_base_unless_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    fork = '[scale.recipe]\nbase = "delphi"\nname = "mine"\nversion = "mine_v1"\n'
    file.write_text(f'extends = "delphi"\n{fork}')
    recipe = load_profile(str(file)).scale.recipe
    assert (recipe.token_law, recipe.heldout_runs) == (None, {})
    assert recipe.hparams == DELPHI.hparams
    file.write_text(f'extends = "delphi"\n{fork}token_law = {{ coefficient = 0.03, exponent = 0.58 }}\n')
    assert load_profile(str(file)).scale.recipe.token_law == TokenLaw(0.03, 0.58)
    assert DELPHI.token_law is not None


@pytest.mark.parametrize(
    ("runs", "complaint"),
    [
        ("1e12 = 512", "line 10: held-out run 1e12 is 512; give a table like"),
        ("1e12 = { batch = 512 }", "line 10: unknown field 'batch'; there are batch_size, seeds, z_loss_weight"),
        ("1e12 = { seeds = [1, 1] }", "line 10: seeds are 1, 1; give different ones"),
        (
            "3.2e12 = { batch_size = 4 }",
            "line 10: to TOML 3.2e12 is key '2e12' in a table '3'; put the budget in quotes, \"3.2e12\"",
        ),
        ("large = { batch_size = 4 }", "line 10: the budget is 'large'; give a positive number of FLOPs, like 1e21"),
        ("-1 = { batch_size = 4 }", "line 10: the budget is '-1'; give a positive number of FLOPs, like 1e21"),
    ],
)
def test_what_is_wrong_with_them_is_told_with_its_line(tmp_path: Path, runs: str, complaint: str) -> None:
    with pytest.raises(MarinError) as refused:
        load_profile(ladder(tmp_path, runs))
    assert complaint in str(refused.value)
