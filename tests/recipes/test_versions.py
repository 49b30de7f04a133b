"""The recipes that the published one superseded, so that what they trained can be read."""

import json
import math
from typing import get_args

import pytest

from marin_core.recipes import (
    RECIPES,
    VERSIONS,
    CompletedAdamHParams,
    KnownVersion,
    ScalingRecipe,
    WidthScaledAdamHParams,
)
from marin_core.recipes.delphi import DELPHI, DELPHI_FIRST, DELPHI_V5, FIT_BUDGETS


def test_every_known_version_has_its_constants_and_no_two_are_alike() -> None:
    assert tuple(VERSIONS) == get_args(KnownVersion)
    assert len({json.dumps(recipe.to_json()) for recipe in VERSIONS.values()}) == len(VERSIONS)


def test_the_recipes_in_use_are_not_the_superseded_ones() -> None:
    assert {name: recipe.version for name, recipe in RECIPES.items()} == {
        "delphi": "adamh_scaling_v6",
        "nano": "nano_v1",
    }


@pytest.mark.parametrize("recipe", VERSIONS.values(), ids=VERSIONS)
def test_a_version_survives_json(recipe: ScalingRecipe) -> None:
    assert ScalingRecipe.from_json(json.loads(json.dumps(recipe.to_json(), allow_nan=False))) == recipe


def test_v5_gives_the_settings_that_its_public_run_was_tracked_with() -> None:
    # isoflop-3e+20-d2048-L21-B128-adamh_scaling_v5, as tables of the public record print it.
    found = DELPHI_V5.candidate(3e20, 2048)
    assert (found.num_layers, found.batch_size, found.steps) == (21, 128, 47_064)
    settings = found.optimizer
    assert f"{settings.learning_rate:.3e}" == "4.483e-03"
    assert f"{settings.adam_lr:.3e}" == "7.382e-05"
    assert f"{settings.epsilon:.2e}" == "4.11e-08"
    assert f"{settings.beta2:.5f}" == "0.99980"


def test_v5_differs_from_v6_in_the_adam_rate_alone_and_by_the_width() -> None:
    for budget in FIT_BUDGETS:
        for old, new in zip(DELPHI_V5.candidates(budget), DELPHI.candidates(budget), strict=True):
            assert old.optimizer.adam_lr == pytest.approx(new.optimizer.adam_lr * 512 / new.hidden_dim, rel=1e-14)
            assert {**old.to_json(), "adam_lr": 0} == {**new.to_json(), "adam_lr": 0}


def test_what_was_fitted_and_held_out_with_v6_is_not_claimed_for_its_predecessors() -> None:
    for recipe in (DELPHI_V5, DELPHI_FIRST):
        assert recipe.token_law is None
        assert recipe.heldout_runs == {}


def test_the_first_recipe_gives_its_constants_at_its_reference_point() -> None:
    found = DELPHI_FIRST.hparams.at_width(512, 8, 1e9)
    assert found.learning_rate == pytest.approx(0.0010013084985803517, rel=1e-14)
    assert found.adam_lr == pytest.approx(0.0005204192548239702, rel=1e-14)
    assert found.epsilon == pytest.approx(9.309976507000956e-08, rel=1e-14)
    assert found.beta2 == 0.9998999999999991
    assert (found.beta1, found.max_grad_norm, found.z_loss_weight) == (0.9, 0.102, 0.0)


def test_the_first_recipe_lowers_every_rate_with_the_root_of_the_horizon() -> None:
    # r/r0 = (64 / 8) · (1e9 / 4e9) = 2
    found = DELPHI_FIRST.hparams.at_width(2048, 64, 4e9)
    assert found.learning_rate == pytest.approx(0.0010013084985803517 * math.sqrt(2), rel=1e-12)
    assert found.adam_lr == pytest.approx(0.0005204192548239702 * math.sqrt(2) * 512 / 2048, rel=1e-12)
    assert found.epsilon == pytest.approx(9.309976507000956e-08 / math.sqrt(2), rel=1e-12)
    assert found.beta2 == pytest.approx(0.9998999999999991**8, rel=1e-12)


def test_the_first_recipe_s_grid_has_no_limit_on_tokens_per_parameter() -> None:
    first, published = DELPHI_FIRST.candidates(3e20), DELPHI.candidates(3e20)
    assert max(c.tokens / c.params for c in published) <= 250 < max(c.tokens / c.params for c in first)


def test_a_rule_that_falls_with_the_width_stays_below_the_cap_at_any() -> None:
    rule = WidthScaledAdamHParams(
        reference_batch_size=8,
        reference_tokens=1e9,
        reference_learning_rate=1e-3,
        reference_adam_lr=8e-3,
        reference_epsilon=1e-8,
        reference_beta2=0.999,
        reference_width=512,
    )
    assert rule.at_width(1024, 8, 1e9).adam_lr == pytest.approx(4e-3)
    assert rule.at_width(256, 8, 1e9).adam_lr == rule.learning_rate_cap
    assert CompletedAdamHParams.from_json(rule.to_json()) == rule
