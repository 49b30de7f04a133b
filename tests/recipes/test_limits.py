"""Which limits of its recipe a run meets, and where an optimum lies in a grid."""

import dataclasses

import pytest

from marin_core.recipes import DELPHI, Candidate, TokenLaw
from marin_core.recipes.delphi import FIT_BUDGETS
from marin_core.recipes.limits import Place, limits_met, place_of_optimum


def names(candidate: Candidate) -> list[str]:
    return [limit.name for limit in limits_met(DELPHI, candidate)]


@pytest.mark.parametrize(
    ("budget", "width", "met"),
    [
        (3e18, 768, []),
        (3e18, 1024, ["smallest batch"]),
        (9e19, 768, ["tokens-per-parameter limit"]),
        (9e19, 4096, ["parameter limit", "smallest batch"]),
        (1e23, 3584, ["learning-rate cap", "largest batch"]),
    ],
)
def test_a_published_run_meets_the_limits_that_shaped_it(budget: float, width: int, met: list[str]) -> None:
    assert names(DELPHI.candidate(budget, width)) == met


def test_a_run_that_is_wider_than_the_grid_allows_would_be_above_the_limit() -> None:
    # The next width after 4096 in the grid of 3e20 is left out for its parameters, and they are what is compared.
    assert DELPHI.params_without_qk_norm(4352) > DELPHI.max_params_of(3e20) == 12e9
    assert max(c.hidden_dim for c in DELPHI.candidates(3e20)) == 4096
    assert DELPHI.max_params_of(1.2e21) == 24e9


def test_rates_at_their_caps_and_beta2_at_its_floor_are_told() -> None:
    run = DELPHI.candidate(3e20, 1280)
    clamped = dataclasses.replace(run, optimizer=DELPHI.hparams.at(2**17, 2.5e7))
    assert names(clamped)[:2] == ["learning-rate cap", "Adam-rate cap"]
    assert "beta2 floor" in names(clamped)
    almost = dataclasses.replace(run.optimizer, beta2=0.91)
    assert "beta2 floor" not in names(dataclasses.replace(run, optimizer=almost))


@pytest.mark.parametrize(
    ("budget", "place"), [(budget, "edge" if budget == 3e18 else "inside") for budget in FIT_BUDGETS]
)
def test_of_the_published_budgets_only_the_smallest_has_its_optimum_at_the_edge(budget: float, place: Place) -> None:
    assert DELPHI.token_law is not None
    assert place_of_optimum(DELPHI.token_law, DELPHI.candidates(budget)) == place


@pytest.mark.parametrize(
    ("tokens", "place"),
    [(1.0e9, "outside"), (1.3e9, "edge"), (2.2e9, "inside"), (3.1e9, "edge"), (4.4e9, "outside")],
)
def test_an_optimum_is_placed_among_the_tokens_of_the_runs(tokens: float, place: Place) -> None:
    # The runs of 3e18 see 1.22, 1.58, 2.23, 3.03 and 4.30 billion tokens.
    assert place_of_optimum(TokenLaw(tokens, 0.0), DELPHI.candidates(3e18)) == place


def test_a_grid_of_two_runs_has_nothing_but_an_edge() -> None:
    assert place_of_optimum(TokenLaw(1.3e9, 0.0), DELPHI.candidates(3e18)[-2:]) == "edge"


@pytest.mark.parametrize(("budget", "width"), [(3e18, 1024), (3e20, 2304), (1e23, 5376)])
def test_a_cell_has_the_last_batch_that_it_tried(budget: float, width: int) -> None:
    tried = DELPHI.tried_batches(budget, width)
    assert tried[-1] == DELPHI.candidate(budget, width).batch_size
    assert DELPHI.exact_tokens(budget, width) <= tried[0] * DELPHI.target_steps * DELPHI.seq_len
    assert DELPHI.exact_tokens(budget, width) > tried[0] / 2 * DELPHI.target_steps * DELPHI.seq_len


def test_a_batch_is_halved_until_the_rates_are_below_their_caps() -> None:
    # On a short horizon with small steps the rule would exceed its cap at the batch that the steps ask for.
    fast = dataclasses.replace(
        DELPHI, hparams=dataclasses.replace(DELPHI.hparams, reference_learning_rate=0.02, reference_adam_lr=1e-4)
    )
    tried = fast.tried_batches(3e20, 1280)
    assert tried == (512, 256, 128, 64)
    rates = [fast.hparams.at(batch, fast.exact_tokens(3e20, 1280)).learning_rate for batch in tried]
    assert rates[:-1] == [fast.hparams.learning_rate_cap] * 3
    assert rates[-1] < fast.hparams.learning_rate_cap
