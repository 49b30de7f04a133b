"""Names of public runs, which say less and other than they seem to."""

import pytest

from marin_core.recipes import DELPHI, RecipeError
from marin_core.recipes.delphi import DELPHI_V5, FIT_BUDGETS
from marin_core.recipes.run_names import parse_run_name

# The winners of the seven budgets, as their checkpoints are named; budget, width.
WINNERS = [
    ("isoflop-3e+18-d1024-L11-B8-adamh_scaling_v6", 3e18, 1024),
    ("isoflop-9e+18-d1152-L12-B16-adamh_scaling_v6", 9e18, 1152),
    ("isoflop-2e+19-d1408-L15-B16-adamh_scaling_v6", 1.8e19, 1408),
    ("isoflop-3e+19-d1536-L16-B32-adamh_scaling_v6", 3e19, 1536),
    ("isoflop-9e+19-d1792-L18-B64-adamh_scaling_v6", 9e19, 1792),
    ("isoflop-2e+20-d2048-L21-B64-adamh_scaling_v6", 1.8e20, 2048),
    ("isoflop-3e+20-d2304-L23-B128-adamh_scaling_v6", 3e20, 2304),
]
# Held-out runs whose weights are public: name, budget, seed.
HELD_OUT = [
    ("adamh-scaling-ladder-nemotron-optimal-1e+21-v5-019021", 1e21, 0),
    ("adamh-scaling-ladder-nemotron-optimal-1e+21-v5-seed42-e251d0", 1e21, 42),
    ("adamh-scaling-ladder-nemotron-optimal-1e+22-v5-seed62746-10f597", 1e22, 62746),
    ("adamh-scaling-ladder-nemotron-optimal-1e+23-v5-27f2fb", 1e23, 0),
]


@pytest.mark.parametrize(("name", "budget", "width"), WINNERS)
def test_the_name_of_a_published_run_is_read_and_written(name: str, budget: float, width: int) -> None:
    candidate = DELPHI.candidate(budget, width)
    assert DELPHI.run_name(candidate) == name
    found = parse_run_name(name)
    assert (found.kind, found.recipe, found.version) == ("isoflop", "delphi", "adamh_scaling_v6")
    assert (found.flops, found.hidden_dim, found.num_layers) == (budget, width, candidate.num_layers)
    assert (found.batch_size, found.key) == (candidate.batch_size, candidate.key)


def test_every_run_of_both_sweeps_is_found_again_by_its_name() -> None:
    for recipe in (DELPHI, DELPHI_V5):
        for candidate in (c for budget in FIT_BUDGETS for c in recipe.candidates(budget)):
            found = parse_run_name(recipe.run_name(candidate))
            assert (found.version, found.key, found.batch_size) == (
                recipe.version,
                candidate.key,
                candidate.batch_size,
            )


def test_a_run_of_the_deprecated_sweep_is_told_from_the_published_one() -> None:
    old = parse_run_name("isoflop-3e+20-d2048-L21-B128-adamh_scaling_v5")
    assert (old.version, old.flops, old.hidden_dim) == ("adamh_scaling_v5", 3e20, 2048)
    new = parse_run_name("isoflop-3e+20-d2048-L21-B128-adamh_scaling_v6-0a1b2c")
    assert (new.version, new.config_hash) == ("adamh_scaling_v6", "0a1b2c")


@pytest.mark.parametrize(("name", "budget", "seed"), HELD_OUT)
def test_the_number_in_a_held_out_run_s_name_is_not_its_recipe_s_version(name: str, budget: float, seed: int) -> None:
    found, run = parse_run_name(name), DELPHI.optimal(budget)
    assert (found.kind, found.version, found.launch) == ("held-out", "adamh_scaling_v6", "v5")
    assert (found.flops, found.seed) == (budget, seed)
    assert (found.hidden_dim, found.num_layers, found.batch_size) == (run.hidden_dim, run.num_layers, run.batch_size)


@pytest.mark.parametrize(
    "name",
    [
        "adamh-v6-scaling-ladder-nemotron-optimal-1e+23-a128a5",
        "adamh-scaling-ladder-nemotron-optimal-1e+21-22c265",
        "adamh-scaling-ladder-nemotron-optimal-1e+22-v2-b51e9c",
    ],
)
def test_the_batch_of_a_launch_that_was_given_up_is_not_guessed(name: str) -> None:
    assert parse_run_name(name).batch_size is None


def test_a_rounded_budget_may_be_another_one_that_is_named() -> None:
    name = DELPHI.run_name(DELPHI.candidate(2.2e19, 1536))
    assert "2e+19" in name
    assert parse_run_name(name, budgets=[2.2e19]).flops == 2.2e19
    # The budget as it stands is the last resort.
    assert parse_run_name("isoflop-6e+18-d1024-L11-B16-adamh_scaling_v6").flops == 6e18


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("delphi-3e18", "is no run name of the public suite; give one like isoflop-"),
        ("isoflop-3e+18-d1024-L11-B8-adamh_scaling_v7", "has the version 'adamh_scaling_v7'"),
        ("isoflop-3e+18-d1024-L11-B64-adamh_scaling_v6", "has no cell of width 1024, 11 layers and batch 64 at 3e18"),
        ("isoflop-3e+03-d1024-L11-B64-adamh_scaling_v6", "has no cell of width 1024, 11 layers and batch 64 at 3e3"),
        ("isoflop-3e+400-d1024-L11-B8-adamh_scaling_v6", "has the budget 3e+400, no number of FLOPs like 3e+18"),
        (
            "adamh-scaling-ladder-nemotron-optimal-1e+400-v5-019021",
            "has the budget 1e+400, no number of FLOPs like 3e+18",
        ),
        ("adamh-scaling-ladder-nemotron-optimal-1e+20-v5-019021", "is of 1e20 FLOPs; held out were 1e21, 1e22, 1e23"),
    ],
)
def test_a_name_that_says_what_never_was_is_refused_in_one_line(name: str, complaint: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parse_run_name(name)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_that_two_named_budgets_have_is_refused() -> None:
    # 1.8e19 and 1.81e19 have the same runs and the same text.
    name = DELPHI.run_name(DELPHI.candidate(1.8e19, 1408))
    with pytest.raises(RecipeError, match=r"more than one budget has cell .* at 1\.8e19 and 1\.81e19 FLOPs"):
        parse_run_name(name, budgets=[1.8e19, 1.81e19])
