"""IsoFLOP curves: known parabolas come back, one bad run hardly matters, and what has no minimum is flagged."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.scaling import IsoFlop, fit_isoflop

BUDGET = 1e18
CENTER = 9.2  # log10 tokens
GRID = tuple(np.linspace(8.6, 9.8, 7))  # symmetric about the centre, which is a run itself


def curve(
    exponents: Sequence[float], minimum: float = CENTER, curvature: float = 0.4, level: float = 3.0
) -> list[float]:
    """Losses on a parabola over log10 tokens."""
    return [level + curvature * (x - minimum) ** 2 for x in exponents]


def fit(exponents: Sequence[float], losses: Sequence[float]) -> IsoFlop:
    """The curve's fit, with parameters such that their product with the tokens is constant."""
    tokens = [10**x for x in exponents]
    return fit_isoflop(BUDGET, tokens, [BUDGET / t for t in tokens], losses)


def shift(fitted: IsoFlop) -> float:
    """Decades between the minimum found and the true one."""
    assert fitted.optimal_tokens is not None
    return abs(np.log10(fitted.optimal_tokens) - CENTER)


def plain_shift(exponents: Sequence[float], losses: Sequence[float]) -> float:
    """The same for ordinary least squares."""
    c2, c1, _ = np.polyfit(exponents, losses, 2)
    return abs(-c1 / (2 * c2) - CENTER)


def test_a_known_parabola_is_recovered() -> None:
    found = fit(GRID, curve(GRID, minimum=9.05))
    assert found.problem is None
    assert found.optimal_tokens == pytest.approx(10**9.05, rel=1e-9)
    assert found.optimal_loss == pytest.approx(3.0, rel=1e-12)
    assert found.optimal_params == pytest.approx(BUDGET / 10**9.05, rel=1e-9)
    assert (found.flops, found.runs) == (BUDGET, 7)


@pytest.mark.parametrize("exponent", [8.6, 9.0, 9.7])
def test_the_fitted_curve_gives_the_loss_anywhere(exponent: float) -> None:
    found = fit(GRID, curve(GRID, minimum=9.05))
    assert found.loss(10**exponent) == pytest.approx(curve([exponent], minimum=9.05)[0], rel=1e-12)


@settings(deadline=None)
@given(
    first=st.floats(5, 11),
    span=st.floats(0.5, 2),
    runs=st.integers(4, 15),
    place=st.floats(0.05, 0.95),
    curvature=st.floats(0.02, 2),
    level=st.floats(1, 6),
)
def test_any_convex_parabola_with_its_minimum_inside_is_recovered(
    first: float, span: float, runs: int, place: float, curvature: float, level: float
) -> None:
    grid = tuple(np.linspace(first, first + span, runs))
    minimum = first + place * span
    found = fit(grid, curve(grid, minimum, curvature, level))
    assert found.problem is None
    assert found.optimal_tokens == pytest.approx(10**minimum, rel=1e-6)
    assert found.optimal_loss == pytest.approx(level, rel=1e-9)


@given(st.permutations(range(len(GRID))))
def test_the_order_of_the_runs_does_not_matter(order: list[int]) -> None:
    losses = curve(GRID, minimum=9.05)
    found = fit([GRID[i] for i in order], [losses[i] for i in order])
    assert found.optimal_tokens == pytest.approx(10**9.05, rel=1e-9)
    assert found.optimal_params == pytest.approx(BUDGET / 10**9.05, rel=1e-9)


@pytest.mark.parametrize("bad_run", [1, 2, 4, 5])
@pytest.mark.parametrize("excess", [0.1, 0.3, 1.0])
def test_one_outlier_between_the_ends_moves_the_minimum_far_less_than_least_squares(
    bad_run: int, excess: float
) -> None:
    losses = curve(GRID)
    losses[bad_run] += excess
    assert shift(fit(GRID, losses)) < plain_shift(GRID, losses) / 4


def test_small_noise_moves_the_minimum_little() -> None:
    noise = np.random.default_rng(0).normal(0, 0.002, len(GRID))
    losses = [loss + e for loss, e in zip(curve(GRID), noise, strict=True)]
    assert shift(fit(GRID, losses)) < 0.02


@pytest.mark.parametrize("curvature", [-0.4, -1e-3], ids=["concave", "slightly concave"])
def test_a_curve_without_a_minimum_is_flagged(curvature: float) -> None:
    found = fit(GRID, curve(GRID, curvature=curvature))
    assert found.problem == "the parabola is not convex: no minimum"
    assert (found.optimal_tokens, found.optimal_params, found.optimal_loss) == (None, None, None)


@pytest.mark.parametrize(("minimum", "edge"), [(8.3, "smallest"), (10.1, "largest"), (8.6 - 1e-6, "smallest")])
def test_a_minimum_beyond_the_grid_is_flagged_with_the_edge_that_it_is_beyond(minimum: float, edge: str) -> None:
    found = fit(GRID, curve(GRID, minimum=minimum))
    assert found.problem is not None
    assert f"{10**minimum:.3g} tokens" in found.problem
    assert found.problem.endswith(f"is beyond the run with the {edge} token count")
    assert (found.optimal_tokens, found.optimal_params, found.optimal_loss) == (None, None, None)


@pytest.mark.parametrize("runs", range(4))
def test_too_few_runs_are_flagged(runs: int) -> None:
    found = fit(GRID[:runs], curve(GRID[:runs], minimum=8.7))
    assert found.problem == f"{runs} finished runs, at least 4 are needed"
    assert found.runs == runs


def test_four_runs_are_enough() -> None:
    assert fit(GRID[:4], curve(GRID[:4], minimum=8.8)).problem is None


@pytest.mark.parametrize("exponents", [(9.0, 9.0, 10.0, 10.0), (9.0, 9.0, 9.0, 9.0)], ids=["two", "one"])
def test_runs_at_fewer_than_three_token_counts_are_flagged(exponents: tuple[float, ...]) -> None:
    assert fit(exponents, (3.0, 3.1, 2.9, 3.0)).problem is not None


@pytest.mark.parametrize(
    "losses", [curve(GRID), curve(GRID, curvature=-0.4), curve(GRID, minimum=8.3)], ids=["usable", "concave", "edge"]
)
def test_a_fit_survives_json(losses: list[float]) -> None:
    found = fit(GRID, losses)
    assert IsoFlop.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


def test_a_fit_of_nothing_survives_json() -> None:
    found = fit((), ())
    assert IsoFlop.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


def test_a_nearly_flat_curve_is_flagged_however_far_its_minimum_is() -> None:
    tokens = [1e5, 2e5, 4e5, 8e5]
    losses = [5.0 - 0.1 * step + 1e-9 * step**2 for step in range(4)]
    fit = fit_isoflop(1e11, tokens, tokens, losses)
    assert fit.problem
    assert fit.optimal_tokens is None
