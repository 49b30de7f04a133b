"""The fitting code against the published suite: seven optima, three held-out runs that they forecast.

The expected fits are the "least squares on log loss" of the rounded optima. Fits of made-up points are in
`test_laws.py`.
"""

import pytest

from marin_core.recipes import format_budget
from marin_core.scaling import Bootstrap, bootstrap, fit_loss_law, fit_token_law, leave_one_out, sensitivity
from tests.conftest import REPOSITORY

# Budget, parameters, tokens and loss (nats per token) at the minimum of its IsoFLOP curve.
OPTIMA = [
    (3e18, 381e6, 1.48e9, 3.586),
    (9e18, 558e6, 2.90e9, 3.386),
    (1.8e19, 754e6, 4.20e9, 3.271),
    (3e19, 910e6, 5.70e9, 3.195),
    (9e19, 1.48e9, 10.2e9, 3.041),
    (1.8e20, 1.94e9, 15.4e9, 2.946),
    (3e20, 2.35e9, 20.9e9, 2.883),
]
BUDGETS, PARAMS, TOKENS, LOSSES = zip(*OPTIMA, strict=True)

HELDOUT = {1e21: 2.758, 1e22: 2.531, 1e23: 2.355}
AGAINST_HELDOUT = pytest.mark.parametrize(("budget", "actual"), HELDOUT.items())


def miss_percent(actual: float, predicted: float) -> float:
    return 100 * (actual - predicted) / predicted


@pytest.fixture(scope="module")
def resampled() -> Bootstrap:
    return bootstrap(dict(zip(BUDGETS, LOSSES, strict=True)))


@AGAINST_HELDOUT
def test_the_published_optima_forecast_the_held_out_runs(budget: float, actual: float) -> None:
    assert abs(miss_percent(actual, fit_loss_law(BUDGETS, LOSSES).loss(budget))) < 0.5


@pytest.mark.parametrize(
    ("budget", "predicted", "miss"), [(1e21, "2.7479", "+0.37"), (1e22, "2.529", "+0.08"), (1e23, "2.355", "-0.00")]
)
def test_the_forecasts_are_those_of_least_squares_on_log_loss(budget: float, predicted: str, miss: str) -> None:
    found = fit_loss_law(BUDGETS, LOSSES).loss(budget)
    assert f"{found:.{len(predicted) - 2}f}" == predicted
    assert f"{miss_percent(HELDOUT[budget], found):+.2f}" == miss


def test_offset_and_exponent_are_those_of_least_squares_on_log_loss() -> None:
    law = fit_loss_law(BUDGETS, LOSSES)
    assert (f"{law.irreducible:.3f}", f"{law.exponent:.4f}") == ("1.680", "0.0996")


def test_the_law_is_its_formula() -> None:
    law = fit_loss_law(BUDGETS, LOSSES)
    assert law.irreducible + law.coefficient * 1e22**-law.exponent == pytest.approx(law.loss(1e22), rel=1e-12)


@pytest.mark.parametrize(
    ("budget", "predicted", "miss"), [(1e21, "2.7165", "+1.53"), (1e22, "2.4376", "+3.83"), (1e23, "2.1873", "+7.67")]
)
def test_without_an_offset_the_forecasts_are_visibly_worse(budget: float, predicted: str, miss: str) -> None:
    law = fit_loss_law(BUDGETS, LOSSES, with_offset=False)
    assert law.irreducible == 0.0
    assert f"{law.loss(budget):.4f}" == predicted
    assert f"{miss_percent(HELDOUT[budget], law.loss(budget)):+.2f}" == miss


@pytest.mark.parametrize(("column", "slope"), [(TOKENS, "0.568"), (PARAMS, "0.403")], ids=["tokens", "params"])
def test_optimal_tokens_and_parameters_grow_with_the_published_slopes(column: tuple[float, ...], slope: str) -> None:
    assert f"{fit_token_law(BUDGETS, column).exponent:.3f}" == slope


@AGAINST_HELDOUT
def test_the_interval_of_a_forecast_contains_what_happened(resampled: Bootstrap, budget: float, actual: float) -> None:
    assert actual in resampled.loss(budget)


@pytest.mark.parametrize(("budget", "below", "above"), [(1e21, -0.5, 0.8), (1e22, -1.9, 1.9), (1e23, -4.2, 3.0)])
def test_the_interval_of_a_forecast_is_as_wide_as_published(
    resampled: Bootstrap, budget: float, below: float, above: float
) -> None:
    middle = fit_loss_law(BUDGETS, LOSSES).loss(budget)
    interval = resampled.loss(budget)
    assert miss_percent(interval.low, middle) == pytest.approx(below, abs=0.3)
    assert miss_percent(interval.high, middle) == pytest.approx(above, abs=0.3)


def test_offset_and_exponent_have_intervals_around_the_fit(resampled: Bootstrap) -> None:
    law = fit_loss_law(BUDGETS, LOSSES)
    assert law.irreducible in resampled.irreducible()
    assert law.exponent in resampled.exponent()


@pytest.mark.parametrize("dropped", [1, 2])
def test_the_smallest_budgets_matter_by_one_to_four_percent(dropped: int) -> None:
    found = fit_loss_law(BUDGETS[dropped:], LOSSES[dropped:])
    assert 1 < miss_percent(HELDOUT[1e23], found.loss(1e23)) < 4


# What others read out of the same rounded optima: offset, exponent, and the loss at 1e21, 1e22 and 1e23 FLOPs.
REFITS = [
    ("least squares on loss", "1.695", "0.1006", ("2.7485", "2.5307", "2.3579")),
    ("least squares on log loss", "1.680", "0.0996", ("2.7479", "2.529", "2.355")),
    ("Huber on log loss, δ = 1e-3", "1.686", "0.1000", ("2.7480", "2.5295", "2.3559")),
    ("Huber on log loss, δ = 1e-4", "1.688", "0.1004", ("2.7471", "2.5285", "2.3550")),
    ("without the smallest budget, least squares on loss", "1.470", "0.0866", ("2.7432", "2.5129", "2.3243")),
    ("without the two smallest budgets, least squares on loss", "0.943", "0.0649", ("2.7363", "2.4872", "2.2726")),
    ("no offset (E = 0)", "0.000", "0.0470", ("2.7165", "2.4376", "2.1873")),
]


@pytest.mark.parametrize(("what", "offset", "exponent", "losses"), REFITS, ids=[row[0] for row in REFITS])
def test_the_law_fitted_in_other_ways_is_the_known_one(
    what: str, offset: str, exponent: str, losses: tuple[str, ...]
) -> None:
    (law,) = [refit.law for refit in sensitivity(dict(zip(BUDGETS, LOSSES, strict=True))) if refit.what == what]
    assert law is not None
    assert (f"{law.irreducible:.3f}", f"{law.exponent:.4f}") == (offset, exponent)
    found = [f"{law.loss(c):.{len(text) - 2}f}" for c, text in zip(HELDOUT, losses, strict=True)]
    assert found == list(losses)


def test_every_budget_is_forecast_by_the_others_and_the_smallest_matters_most() -> None:
    rows = leave_one_out(dict(zip(BUDGETS, LOSSES, strict=True)))
    errors = {row.flops: row.error_percent or 0.0 for row in rows}
    assert tuple(errors) == BUDGETS
    assert max(abs(error) for error in errors.values()) < 0.35
    moved = {row.flops: miss_percent(HELDOUT[1e23], row.refit.law.loss(1e23)) for row in rows if row.refit.law}
    assert max(moved, key=lambda c: abs(moved[c])) == 3e18
    assert 1 < moved[3e18] < 2
    assert max(abs(miss) for c, miss in moved.items() if c != 3e18) < 0.6


def test_the_page_has_the_numbers_of_the_fit(resampled: Bootstrap) -> None:
    law = fit_loss_law(BUDGETS, LOSSES)
    lines = []
    for budget, actual in HELDOUT.items():
        interval, predicted = resampled.loss(budget), law.loss(budget)
        cells = [f"{predicted:.4f}", f"{interval.low:.4f} to {interval.high:.4f}", str(actual)]
        lines.append([format_budget(budget), *cells, f"{miss_percent(actual, predicted):+.2f} %"])
    for left in leave_one_out(dict(zip(BUDGETS, LOSSES, strict=True))):
        refit = left.refit.law
        assert refit
        there = miss_percent(left.loss, refit.loss(left.flops))
        forecasts = [f"{refit.loss(budget):.4f}" for budget in HELDOUT]
        about = [f"{refit.irreducible:.3f}", f"{refit.exponent:.4f}", f"{there:+.2f} %"]
        lines.append([format_budget(left.flops), *about, *forecasts])
    page = (REPOSITORY / "marin_core" / "training" / "README.md").read_text()
    assert [line for cells in lines if (line := f"| {' | '.join(cells)} |") not in page] == []
