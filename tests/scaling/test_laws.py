"""Token and loss laws: exact points give their law back, too few give an error, resampling says how sure we are.

The published suite is in `test_published.py`.
"""

import dataclasses

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_core.scaling import (
    Bootstrap,
    Curve,
    Interval,
    LossLaw,
    ScalingError,
    bootstrap,
    fit_loss_law,
    fit_token_law,
)

BUDGETS = (3e18, 9e18, 1.8e19, 3e19, 9e19, 1.8e20, 3e20)
LAPTOP_BUDGETS = (1e11, 2e11, 4e11, 8e11)
TRUTH = LossLaw(irreducible=1.7, scale=1.5, exponent=0.1, reference=3e19)
RESAMPLES = 60


def noisy_curves(noise: float) -> tuple[dict[float, float], list[Curve]]:
    """Four budgets of nine runs around minima on `TRUTH`, and those minima."""
    generator = np.random.default_rng(1)
    curves = []
    for budget in BUDGETS[:4]:
        x = np.linspace(-0.6, 0.6, 9)
        losses = TRUTH.loss(budget) + 0.3 * x**2 + noise * generator.standard_normal(len(x))
        curves.append(Curve(budget, list(1e9 * 10**x), list(1e9 / 10**x), list(losses)))
    return {budget: TRUTH.loss(budget) for budget in BUDGETS[:4]}, curves


@pytest.fixture(scope="module")
def resampled() -> Bootstrap:
    return bootstrap(*noisy_curves(0.01), RESAMPLES)


def width(interval: Interval) -> float:
    return interval.high - interval.low


@settings(deadline=None, max_examples=25)
@given(
    budgets=st.sampled_from([BUDGETS, LAPTOP_BUDGETS]),
    irreducible=st.floats(1, 3),
    scale=st.floats(0.5, 3),
    exponent=st.floats(0.05, 0.4),
)
def test_a_loss_law_is_recovered_from_its_own_points(
    budgets: tuple[float, ...], irreducible: float, scale: float, exponent: float
) -> None:
    law = LossLaw(irreducible, scale, exponent, reference=float(np.exp(np.mean(np.log(budgets)))))
    found = fit_loss_law(budgets, [law.loss(c) for c in budgets])
    assert found.irreducible == pytest.approx(law.irreducible, rel=1e-4)
    assert found.exponent == pytest.approx(law.exponent, rel=1e-4)
    assert found.coefficient == pytest.approx(law.coefficient, rel=1e-2)  # reference^alpha magnifies errors of alpha
    assert found.loss(100 * max(budgets)) == pytest.approx(law.loss(100 * max(budgets)), rel=1e-5)


@settings(deadline=None)
@given(scale=st.floats(1, 5), exponent=st.floats(0.02, 0.3))
def test_a_pure_power_law_is_recovered_without_an_offset(scale: float, exponent: float) -> None:
    law = LossLaw(0.0, scale, exponent, reference=3e19)
    found = fit_loss_law(BUDGETS, [law.loss(c) for c in BUDGETS], with_offset=False)
    assert found.irreducible == 0.0
    assert found.exponent == pytest.approx(exponent, rel=1e-6)
    assert found.loss(1e23) == pytest.approx(law.loss(1e23), rel=1e-6)


@settings(deadline=None, max_examples=10)
@given(st.permutations(range(len(BUDGETS))))
def test_the_order_of_the_points_does_not_matter(order: list[int]) -> None:
    losses = [TRUTH.loss(c) + 0.003 * (-1) ** i for i, c in enumerate(BUDGETS)]
    expected = fit_loss_law(BUDGETS, losses)
    found = fit_loss_law([BUDGETS[i] for i in order], [losses[i] for i in order])
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(expected), rel=1e-5)


@settings(deadline=None)
@given(exponent=st.floats(0.3, 0.8), coefficient=st.floats(1e-3, 1e2))
@example(exponent=0.5800829529762268, coefficient=0.026719627901911736)
def test_a_token_law_is_recovered_from_its_own_points(exponent: float, coefficient: float) -> None:
    found = fit_token_law(BUDGETS, [coefficient * c**exponent for c in BUDGETS])
    assert found.exponent == pytest.approx(exponent, rel=1e-9)
    assert found.coefficient == pytest.approx(coefficient, rel=1e-7)
    assert found.tokens(1e23) == pytest.approx(coefficient * 1e23**exponent, rel=1e-9)


@pytest.mark.parametrize("budgets", [(), (3e18,), (3e18, 3e18, 3e18), (3e18, 9e18), (3e18, 9e18, 9e18)])
def test_a_loss_law_needs_three_budgets(budgets: tuple[float, ...]) -> None:
    with pytest.raises(ScalingError, match=rf"at 3 budgets, there are {len(set(budgets))}; ") as refused:
        fit_loss_law(budgets, [3.0] * len(budgets))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("budgets", [(), (3e18,), (3e18, 3e18)])
def test_a_token_law_needs_two_budgets(budgets: tuple[float, ...]) -> None:
    with pytest.raises(ScalingError, match=rf"at 2 budgets, there are {len(set(budgets))}; ") as refused:
        fit_token_law(budgets, [1e9] * len(budgets))
    assert "\n" not in str(refused.value)


def test_resampling_needs_three_budgets() -> None:
    with pytest.raises(ScalingError, match="at 3 budgets, there are 2"):
        bootstrap({3e18: 3.6, 9e18: 3.4}, resamples=5)


def test_resampling_twice_gives_the_same_laws(resampled: Bootstrap) -> None:
    assert bootstrap(*noisy_curves(0.01), RESAMPLES) == resampled


def test_the_order_of_the_budgets_does_not_change_the_resamples(resampled: Bootstrap) -> None:
    optima, curves = noisy_curves(0.01)
    assert bootstrap(dict(reversed(optima.items())), curves, RESAMPLES) == resampled


def test_there_are_as_many_resamples_as_asked_for(resampled: Bootstrap) -> None:
    assert (len(resampled.laws), len(resampled.noise)) == (RESAMPLES, RESAMPLES)


def test_less_noise_gives_a_narrower_interval() -> None:
    quiet, loud = (bootstrap(*noisy_curves(noise), RESAMPLES).loss(1e21) for noise in (0.001, 0.02))
    assert width(quiet) < width(loud) / 3


def test_the_interval_widens_with_the_distance_from_what_was_seen(resampled: Bootstrap) -> None:
    assert width(resampled.loss(1e20)) < width(resampled.loss(1e22)) < width(resampled.loss(1e24))


def test_knowing_single_runs_adds_their_noise_to_a_forecast(resampled: Bootstrap) -> None:
    optima, _ = noisy_curves(0.01)
    assert set(bootstrap(optima, resamples=RESAMPLES).noise) == {0.0}
    assert np.std(resampled.noise) == pytest.approx(0.01, rel=0.5)


def test_exact_points_leave_no_doubt() -> None:
    found = bootstrap({c: TRUTH.loss(c) for c in BUDGETS}, resamples=RESAMPLES)
    assert width(found.loss(1e22)) < 1e-4
    assert found.loss(1e22).low == pytest.approx(TRUTH.loss(1e22), rel=1e-4)


def test_resamples_survive_their_table(resampled: Bootstrap) -> None:
    assert Bootstrap.from_table(resampled.table()) == resampled


def test_the_table_of_resamples_has_one_row_each_and_named_columns(resampled: Bootstrap) -> None:
    table = resampled.table()
    assert table.shape == (RESAMPLES, 5)
    assert table.schema == pl.Schema(
        dict.fromkeys(("irreducible", "scale", "exponent", "reference", "noise"), pl.Float64)
    )


def test_an_interval_holds_ninety_five_percent() -> None:
    interval = Interval.of([float(v) for v in range(1001)])
    assert (interval.low, interval.high) == (25.0, 975.0)
    assert 25.0 in interval
    assert 976.0 not in interval
