"""What holds for every recipe, whatever its constants: budgets, grids, plans, JSON, forks.

The published numbers of Delphi are in `test_delphi.py`.
"""

import dataclasses
import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_core.profile import load_profile
from marin_core.recipes import (
    DELPHI,
    NANO,
    RECIPES,
    AdamHParams,
    Candidate,
    CompletedAdamHParams,
    RecipeError,
    ScalingRecipe,
    TrainPlan,
    format_budget,
)

LAPTOP = load_profile("laptop").scale
UNTIMED = settings(deadline=None)  # a busy machine is no failure
BOTH = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def budgets_between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log10(low), math.log10(high)).map(lambda exponent: 10**exponent)


USABLE: st.SearchStrategy[tuple[ScalingRecipe, float]] = st.one_of(
    st.tuples(st.just(DELPHI), budgets_between(1e18, 1e25)),
    st.tuples(st.just(NANO), budgets_between(min(LAPTOP.fit_budgets), max(LAPTOP.heldout_budgets))),
)


class HalfRate(CompletedAdamHParams):
    """A fork of the transfer rule, made as its docstring says."""

    def at(self, batch_size: int, tokens: float) -> AdamHParams:
        params = super().at(batch_size, tokens)
        return dataclasses.replace(params, learning_rate=params.learning_rate / 2)


def fork_of_delphi() -> ScalingRecipe:
    rule = HalfRate(**dataclasses.asdict(DELPHI.hparams))
    return dataclasses.replace(DELPHI, name="half", version="half_v1", hparams=rule)


def plan_of(recipe: ScalingRecipe, budget: float) -> TrainPlan:
    return TrainPlan.of(recipe, recipe.candidates(budget)[0], eval_sequences=128, seed=7)


def through_json(recipe: ScalingRecipe) -> ScalingRecipe:
    return ScalingRecipe.from_json(json.loads(json.dumps(recipe.to_json(), allow_nan=False)))


@UNTIMED
@given(USABLE)
def test_batches_are_powers_of_two_within_the_limits(case: tuple[ScalingRecipe, float]) -> None:
    recipe, budget = case
    batches = {c.batch_size for c in recipe.candidates(budget)}
    assert all(batch.bit_count() == 1 for batch in batches)
    assert recipe.min_batch_size <= min(batches)
    assert max(batches) <= recipe.max_batch_size


@UNTIMED
@given(USABLE)
def test_tokens_are_what_the_steps_see(case: tuple[ScalingRecipe, float]) -> None:
    recipe, budget = case
    assert all(c.tokens == c.steps * c.batch_size * c.seq_len for c in recipe.candidates(budget))


@UNTIMED
@given(USABLE)
def test_a_run_spends_its_budget_to_within_half_a_step(case: tuple[ScalingRecipe, float]) -> None:
    recipe, budget = case
    misses = [
        abs(c.tokens - budget / recipe.flops_per_token(c.hidden_dim)) / (c.batch_size * c.seq_len)
        for c in recipe.candidates(budget)
    ]
    assert max(misses) <= 0.5 + 1e-9


@UNTIMED
@given(USABLE)
def test_widths_ascend_and_are_whole_heads(case: tuple[ScalingRecipe, float]) -> None:
    recipe, budget = case
    widths = [c.hidden_dim for c in recipe.candidates(budget)]
    assert widths == sorted(set(widths))
    assert all(width % recipe.head_dim == 0 for width in widths)


@UNTIMED
@given(USABLE)
def test_no_run_of_a_grid_exceeds_the_tokens_per_parameter(case: tuple[ScalingRecipe, float]) -> None:
    recipe, budget = case
    # The limit is on the exact horizon and counts no QK-norm weights, hence the slack.
    assert all(c.tokens / c.params <= recipe.max_tokens_per_param * 1.01 for c in recipe.candidates(budget))


@UNTIMED
@given(USABLE)
def test_rates_of_a_grid_are_below_their_caps_unless_the_batch_is_the_smallest(
    case: tuple[ScalingRecipe, float],
) -> None:
    recipe, budget = case
    larger = [c for c in recipe.candidates(budget) if c.batch_size > recipe.min_batch_size]
    assert all(recipe.hparams.within_limits(c.optimizer) for c in larger)


@UNTIMED
@given(USABLE)
def test_every_cell_has_a_partition_key_of_its_own(case: tuple[ScalingRecipe, float]) -> None:
    recipe, budget = case
    keys = [c.key for c in recipe.candidates(budget)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("budget", "width", "key"), [(3e18, 1024, "3e18-d1024"), (1.8e19, 640, "1.8e19-d0640"), (3e18, 512, "3e18-d0512")]
)
def test_a_partition_key_says_budget_and_width(budget: float, width: int, key: str) -> None:
    assert DELPHI.candidate(budget, width).key == key


@pytest.mark.parametrize(
    ("recipe", "budget", "named"),
    [
        (DELPHI, 1e15, "1e15"),
        (DELPHI, 1e30, "1e30"),
        (DELPHI, 1.0, "1e0"),
        (NANO, 1e6, "1e6"),
        (NANO, 1e21, "1e21"),
        (DELPHI, 0.0, "0.0"),
        (DELPHI, -1.0, "-1.0"),
        (DELPHI, -3e18, "-3e+18"),
        (DELPHI, math.nan, "nan"),
        (DELPHI, math.inf, "inf"),
        (DELPHI, -math.inf, "-inf"),
    ],
)
def test_an_unusable_budget_is_refused_in_one_line_that_names_it(
    recipe: ScalingRecipe, budget: float, named: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        recipe.candidates(budget)
    message = str(refused.value)
    assert f"budget {named} " in message
    assert "\n" not in message


@BOTH
@UNTIMED
@given(budget=st.floats())
@example(budget=5e-324)
@example(budget=1.7976931348623157e308)
def test_any_number_gives_a_grid_or_a_recipe_error(recipe: ScalingRecipe, budget: float) -> None:
    try:
        found: list[Candidate] = recipe.candidates(budget)
    except RecipeError as refused:
        assert "\n" not in str(refused)
    else:
        assert found


def test_a_width_outside_the_grid_is_refused_with_the_widths_there_are() -> None:
    with pytest.raises(RecipeError, match=r"width 700 .* 3e18 FLOPs: 512, 640, 768, 896, 1024$"):
        DELPHI.candidate(3e18, 700)


def test_a_recipe_without_a_token_law_recommends_nothing() -> None:
    with pytest.raises(RecipeError, match=r"'nano' has no published token law"):
        NANO.optimal(LAPTOP.heldout_budgets[0])


@UNTIMED
@given(mantissa=st.integers(1, 999_999), exponent=st.integers(0, 25))
def test_the_text_of_a_budget_parses_back_to_it(mantissa: int, exponent: int) -> None:
    budget = float(f"{mantissa}e{exponent}")
    assert float(format_budget(budget)) == budget


@pytest.mark.parametrize(
    ("budget", "text"), [(3e18, "3e18"), (1.8e19, "1.8e19"), (1e21, "1e21"), (8e11, "8e11"), (1.25e9, "1.25e9")]
)
def test_a_budget_is_written_short(budget: float, text: str) -> None:
    assert format_budget(budget) == text


@UNTIMED
@given(budgets_between(1e3, 1e26))
@example(9.999996e18)
def test_the_text_of_a_budget_is_its_only_one(budget: float) -> None:
    text = format_budget(budget)
    assert format_budget(float(text)) == text


@BOTH
def test_a_recipe_survives_json(recipe: ScalingRecipe) -> None:
    assert through_json(recipe) == recipe


@pytest.mark.parametrize(("recipe", "budget"), [(DELPHI, 3e18), (NANO, max(LAPTOP.fit_budgets))])
def test_a_plan_survives_json(recipe: ScalingRecipe, budget: float) -> None:
    plan = plan_of(recipe, budget)
    assert TrainPlan.from_json(json.loads(json.dumps(plan.to_json(), allow_nan=False))) == plan


def test_a_plan_carries_its_recipe_and_every_number_of_its_candidate() -> None:
    candidate = DELPHI.candidate(3e20, 2304)
    plan = TrainPlan.of(DELPHI, candidate, eval_sequences=128, seed=7)
    assert (plan.recipe, plan.recipe_version) == ("delphi", "adamh_scaling_v6")
    assert (plan.mlp_dim, plan.head_dim, plan.vocab_size, plan.seed) == (4 * 2304, 128, 128_256, 7)
    assert (plan.tokens, plan.steps, plan.params) == (candidate.tokens, candidate.steps, candidate.params)
    assert plan.optimizer == candidate.optimizer


def test_a_fork_of_the_transfer_rule_changes_the_rates_and_nothing_else() -> None:
    original, forked = DELPHI.candidate(3e18, 1024), fork_of_delphi().candidate(3e18, 1024)
    assert forked.optimizer.learning_rate == original.optimizer.learning_rate / 2
    same_rate = dataclasses.replace(forked.optimizer, learning_rate=original.optimizer.learning_rate)
    assert dataclasses.replace(forked, optimizer=same_rate) == original


def test_a_fork_of_the_transfer_rule_survives_json() -> None:
    fork = fork_of_delphi()
    restored = through_json(fork)
    assert restored.candidate(3e18, 1024).optimizer == fork.candidate(3e18, 1024).optimizer


@pytest.mark.parametrize("budget", LAPTOP.fit_budgets)
def test_a_budget_of_the_laptop_s_ladder_has_enough_widths_for_a_curve(budget: float) -> None:
    assert len(LAPTOP.recipe.candidates(budget)) >= 5


def test_the_laptop_s_ladder_is_long_enough_for_a_law_and_a_forecast() -> None:
    assert len(set(LAPTOP.fit_budgets)) >= 4
    assert min(LAPTOP.heldout_budgets) >= 4 * max(LAPTOP.fit_budgets)
    assert all(LAPTOP.recipe.candidates(budget) for budget in LAPTOP.heldout_budgets)
