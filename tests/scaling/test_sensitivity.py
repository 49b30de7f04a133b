"""The law without each budget and fitted otherwise: what is left out is left out, and too little is said to be."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize

from marin_core.scaling import LeftOut, LossLaw, Refit, fit_loss_law, leave_one_out, sensitivity

BUDGETS = (8e9, 1.6e10, 3.2e10, 6.4e10, 1.28e11)
TRUTH = LossLaw(irreducible=2.0, scale=2.0, exponent=0.15, reference=3e10)
OPTIMA = {c: TRUTH.loss(c) + bump for c, bump in zip(BUDGETS, (0.004, -0.003, 0.002, 0.003, -0.002), strict=True)}


def searched(optima: dict[float, float]) -> tuple[float, float, float]:
    """Offset, coefficient at 3e10 FLOPs and exponent that minimize squared log residuals, by a search of no kinship."""
    x, y = np.log(np.array(list(optima)) / 3e10), np.log(list(optima.values()))

    def cost(p: np.ndarray) -> float:
        found = p[0] + np.exp(p[1] - p[2] * x)
        return float(((np.log(found) - y) ** 2).sum()) if (found > 0).all() else np.inf

    options = {"xatol": 1e-10, "fatol": 1e-16, "maxiter": 20_000, "maxfev": 20_000}
    best = minimize(cost, (1.5, 1.0, 0.1), method="Nelder-Mead", options=options).x
    return float(best[0]), float(np.exp(best[1])), float(best[2])


@pytest.mark.parametrize("left_out", BUDGETS)
def test_a_budget_is_forecast_by_the_law_of_the_others(left_out: float) -> None:
    (row,) = [row for row in leave_one_out(OPTIMA) if row.flops == left_out]
    offset, scale, exponent = searched({c: loss for c, loss in OPTIMA.items() if c != left_out})
    expected = offset + scale * (left_out / 3e10) ** -exponent
    assert row.predicted == pytest.approx(expected, rel=1e-5)
    assert row.error_percent == pytest.approx(100 * (OPTIMA[left_out] / expected - 1), abs=2e-3)
    assert (row.loss, row.refit.left_out) == (OPTIMA[left_out], (left_out,))


def test_an_exact_law_does_not_depend_on_how_it_is_fitted() -> None:
    rows = sensitivity({c: TRUTH.loss(c) for c in BUDGETS})
    forecasts = {row.what: row.law.loss(1e12) for row in rows if row.law}
    assert forecasts.pop("no offset (E = 0)") < TRUTH.loss(1e12) - 0.05
    assert list(forecasts.values()) == pytest.approx([TRUTH.loss(1e12)] * 8, rel=1e-4)


def test_the_law_itself_comes_first() -> None:
    assert sensitivity(OPTIMA)[0].law == fit_loss_law(list(OPTIMA), list(OPTIMA.values()))


def test_dropped_budgets_are_the_smallest_whatever_their_order() -> None:
    shuffled = dict(reversed(OPTIMA.items()))
    dropped = {row.left_out for row in sensitivity(shuffled)}
    assert dropped == {(), (8e9,), (8e9, 1.6e10)}
    assert sensitivity(shuffled) == sensitivity(OPTIMA)


def test_three_budgets_have_a_law_and_say_what_they_cannot_tell() -> None:
    three = dict(list(OPTIMA.items())[:3])
    assert {row.refit.problem for row in leave_one_out(three)} == {
        "a loss law needs usable minima at 3 budgets, there are 2; see delphi/isoflop"
    }
    assert all(row.predicted is None and row.error_percent is None for row in leave_one_out(three))
    assert [row.law is not None for row in sensitivity(three)] == [True] * 4 + [False] * 4 + [True]
    assert all((row.problem is None) == (row.law is not None) for row in sensitivity(three))


@pytest.mark.parametrize("count", [3, 5])
def test_the_rows_survive_json(count: int) -> None:
    optima = dict(list(OPTIMA.items())[:count])
    for row in leave_one_out(optima):
        assert LeftOut.from_json(json.loads(json.dumps(row.to_json(), allow_nan=False))) == row
    for refit in sensitivity(optima):
        assert Refit.from_json(json.loads(json.dumps(refit.to_json(), allow_nan=False))) == refit
