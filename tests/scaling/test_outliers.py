"""Runs off their budget's curve are named, and runs that only scatter are not."""

import numpy as np
import pytest

from marin_core.scaling import Curve, IsoFlop, find_outliers, fit_isoflop

BUDGETS = (8e9, 1.6e10, 3.2e10)


def curves(noise: float, excess: float = 0.0, curvature: float = 0.3) -> list[Curve]:
    """Three budgets of eight runs; the fourth of the second has `excess` nats."""
    generator = np.random.default_rng(3)
    x = np.linspace(-0.6, 0.6, 8)
    made = []
    for budget in BUDGETS:
        losses = 3.0 + curvature * x**2 + noise * generator.standard_normal(len(x))
        losses[3] += excess if budget == BUDGETS[1] else 0.0
        names = [f"{budget:g}-{i}" for i in range(len(x))]
        made.append(Curve(budget, list(1e6 * 10**x), list(1e6 / 10**x), list(losses), names))
    return made


def fits(found: list[Curve]) -> list[IsoFlop]:
    return [fit_isoflop(c.flops, c.tokens, c.params, c.losses) for c in found]


@pytest.mark.parametrize("excess", [0.2, -0.2])
def test_a_run_off_its_curve_is_named_with_how_far(excess: float) -> None:
    made = curves(0.003, excess)
    (outlier,) = find_outliers(made, fits(made))
    assert (outlier.name, outlier.flops) == ("1.6e+10-3", 1.6e10)
    assert outlier.residual == pytest.approx(excess, rel=0.1)
    assert abs(outlier.residual) > outlier.limit


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.05])
def test_runs_that_only_scatter_are_no_outliers(noise: float) -> None:
    made = curves(noise)
    assert find_outliers(made, fits(made)) == []


def test_what_is_an_outlier_among_quiet_runs_is_none_among_loud_ones() -> None:
    quiet, loud = (curves(noise, 0.15) for noise in (0.003, 0.1))
    assert find_outliers(quiet, fits(quiet))
    assert "1.6e+10-3" not in [outlier.name for outlier in find_outliers(loud, fits(loud))]


def test_a_budget_without_a_curve_tells_nothing() -> None:
    few = [Curve(8e9, [1e5, 2e5], [1e5, 5e4], [3.0, 9.0], ["a", "b"])]
    assert find_outliers(few, fits(few)) == []
