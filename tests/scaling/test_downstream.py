"""Both steps of a downstream forecast: known curves come back, intervals hold the truth, and what cannot be forecast
is refused with its reason."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.scaling import LossLaw, Scored, Sigmoid, TaskForecast, fit_sigmoid, forecast_task

BUDGETS = (3e18, 9e18, 1.8e19, 3e19, 9e19, 1.8e20, 3e20)
LAW = LossLaw(irreducible=0.5, scale=1.0, exponent=0.25, reference=3e19)
CURVE = Sigmoid(floor=0.25, midpoint=1.1, width=0.15)
RESAMPLES = 40


def model(name: str, flops: float | None, cost: float, hard: float | None = None, **more: float) -> Scored:
    return Scored(name, flops, cost, CURVE.hard(cost) if hard is None else hard, **more)  # type: ignore[arg-type]


def ladder(budgets: tuple[float, ...] = BUDGETS, **more: float) -> list[Scored]:
    """The compute-optimal model of each budget, exactly on both curves."""
    return [model(f"{c:g}", c, LAW.loss(c), **more) for c in budgets]


def measured(seed: int, examples: int) -> list[Scored]:
    """The same, with scores of that many questions."""
    generator = np.random.default_rng(seed)
    found = []
    for each in ladder():
        right = generator.binomial(examples, each.hard) / examples
        cost = each.cost + 0.01 * generator.standard_normal()
        found.append(Scored(each.name, each.flops, cost, right, cost_stderr=0.01, examples=examples))
    return found


def forecast(optimal: list[Scored], models: list[Scored] | None = None) -> TaskForecast:
    return forecast_task(optimal, optimal if models is None else models, CURVE.floor, RESAMPLES)


@settings(deadline=None, max_examples=15)
@given(midpoint=st.floats(0.8, 1.4), width=st.floats(0.05, 0.3), floor=st.sampled_from([0.0, 0.25, 0.5]))
def test_a_sigmoid_is_recovered_from_its_own_points(midpoint: float, width: float, floor: float) -> None:
    truth = Sigmoid(floor, midpoint, width)
    costs = list(np.linspace(0.7, 1.6, 12))
    found = fit_sigmoid(costs, [truth.hard(c) for c in costs], floor)
    assert found.midpoint == pytest.approx(midpoint, rel=1e-3)
    assert found.width == pytest.approx(width, rel=1e-2)


@settings(deadline=None, max_examples=15)
@given(hards=st.lists(st.floats(0, 1), min_size=6, max_size=6), floor=st.sampled_from([0.0, 0.25]))
def test_whatever_the_scores_a_lower_cost_never_lowers_the_forecast(hards: list[float], floor: float) -> None:
    found = fit_sigmoid(list(np.linspace(0.5, 2.0, 6)), hards, floor)
    scores = [found.hard(c) for c in np.linspace(-5, 5, 50)]
    assert all(a >= b for a, b in pairwise(scores))
    assert min(scores) >= floor
    assert max(scores) <= 1


@pytest.mark.parametrize("flops", [1e21, 1e22, 1e23])
def test_exact_scores_forecast_exactly(flops: float) -> None:
    found = forecast(ladder())
    cost, score = LAW.loss(flops), CURVE.hard(LAW.loss(flops))
    assert (found.status, found.problems) == ("forecast", ())
    assert found.cost(flops) == pytest.approx(cost, rel=1e-4)
    assert found.hard(flops) == pytest.approx(score, abs=1e-3)
    for interval, truth in ((found.cost_interval(flops), cost), (found.hard_interval(flops), score)):
        assert interval is not None
        assert interval.high - interval.low < 1e-3
        assert interval.low - 1e-3 <= truth <= interval.high + 1e-3


def test_the_interval_of_a_score_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of eight suites with noise, an interval of 95 % misses the true score in few."""
    inside = 0
    for seed in range(8):
        interval = forecast(measured(seed, 400)).hard_interval(1e21)
        assert interval is not None
        inside += CURVE.hard(LAW.loss(1e21)) in interval
    assert inside >= 7


def test_fewer_questions_give_a_wider_interval_of_the_score() -> None:
    narrow, wide = (forecast(measured(1, examples)).hard_interval(1e21) for examples in (10_000, 100))
    assert narrow and wide
    assert (narrow.high - narrow.low) * 2 < wide.high - wide.low


def test_the_same_models_give_the_same_forecast_in_any_order() -> None:
    optimal = measured(0, 400)
    assert forecast(optimal) == forecast(optimal)
    assert forecast(list(reversed(optimal)), optimal) == forecast(optimal)


def test_models_that_are_not_compute_optimal_take_part_in_the_second_step_only() -> None:
    worse = [model(f"worse-{c:g}", c, LAW.loss(c) + 0.2) for c in BUDGETS]
    found, expected = forecast(ladder(), [*ladder(), *worse]), forecast(ladder())
    assert found.law == expected.law
    assert found.hard(1e21) == pytest.approx(expected.hard(1e21), abs=1e-3)


def test_external_models_can_tell_the_second_step_that_the_suite_is_too_small_for() -> None:
    """The suite is at chance; models of others are not."""
    budgets = (1e13, 3e13, 9e13, 2.7e14)
    optimal = [model(f"{c:g}", c, LAW.loss(c), examples=400) for c in budgets]
    assert max(each.hard for each in optimal) - CURVE.floor < 1e-3
    assert forecast(optimal).status == "soft only"
    others = [model(f"other-{i}", None, cost) for i, cost in enumerate(np.linspace(0.8, 1.6, 8))]
    found = forecast(optimal, [*optimal, *others])
    assert found.status == "forecast"
    assert found.hard(1e21) == pytest.approx(CURVE.hard(LAW.loss(1e21)), abs=0.01)


def test_three_budgets_with_standard_errors_are_enough() -> None:
    three = ladder(BUDGETS[:3], cost_stderr=0.005)
    interval = forecast(three, ladder()).cost_interval(1e20)
    assert interval is not None
    assert interval.high - interval.low > 0.01


REFUSED_LAW = {
    "two budgets": (ladder(BUDGETS[:2]), "compute-optimal models of 2 budgets were evaluated, at least 3 are needed"),
    "no models": ([], "compute-optimal models of 0 budgets were evaluated, at least 3 are needed"),
    "no error": (ladder(BUDGETS[:3]), "3 budgets without standard errors fit exactly and leave no interval"),
    "no trend": (
        [model(f"{c:g}", c, 2 - LAW.loss(c) / 2) for c in BUDGETS],
        "the soft metric is no better at 3e20 FLOPs than at 3e18: no trend to carry on",
    ),
    "two signs": (
        [model(f"{c:g}", c, LAW.loss(c) - 1.5) for c in BUDGETS],
        "the soft metric is not of one sign, a power law needs one",
    ),
}


@pytest.mark.parametrize(("optimal", "reason"), REFUSED_LAW.values(), ids=REFUSED_LAW)
def test_a_first_step_that_the_models_do_not_determine_is_refused(optimal: list[Scored], reason: str) -> None:
    found = forecast(optimal, ladder())
    assert found.status == "refused"
    assert found.problems[0].startswith(reason)
    assert found.cost(1e21) is found.hard(1e21) is found.cost_interval(1e21) is found.hard_interval(1e21) is None


REFUSED_SIGMOID = {
    "four models": (ladder(BUDGETS[:4]), "4 models have both metrics, at least 5 are needed"),
    "at chance": (
        [model(f"{c:g}", c, LAW.loss(c), hard=0.27, examples=400) for c in BUDGETS],
        "no signal above chance (0.250): the best score is 0.270, above 0.308 is one",
    ),
    "the wrong way": (
        [model(f"{c:g}", c, LAW.loss(c), hard=0.9 - i / 10) for i, c in enumerate(BUDGETS)],
        "the hard metric does not rise as the soft one improves",
    ),
    "one score": (
        [model(f"{c:g}", c, LAW.loss(c), hard=0.5) for c in BUDGETS],
        "the hard metric does not rise as the soft one improves",
    ),
    "two values": (
        [model(f"{i}", None, 1.0 + i % 2) for i in range(6)],
        "the soft metric has fewer than 3 values: no curve through them",
    ),
}


@pytest.mark.filterwarnings("ignore:An input array is constant")
@pytest.mark.parametrize(("models", "reason"), REFUSED_SIGMOID.values(), ids=REFUSED_SIGMOID)
def test_a_second_step_without_a_signal_leaves_the_soft_forecast(models: list[Scored], reason: str) -> None:
    found = forecast(ladder(), models)
    assert (found.status, found.problems) == ("soft only", (reason,))
    assert found.cost(1e21) is not None
    assert found.hard(1e21) is found.hard_interval(1e21) is None


def test_guessing_is_hardly_ever_taken_for_a_signal() -> None:
    generator = np.random.default_rng(0)
    taken = 0
    for _ in range(100):
        scores = generator.binomial(400, 0.25, size=len(BUDGETS)) / 400
        models = [
            model(f"{c:g}", c, LAW.loss(c), hard=float(s), examples=400) for c, s in zip(BUDGETS, scores, strict=True)
        ]
        problems = forecast_task(ladder(), models, 0.25, resamples=1).problems
        taken += not any(problem.startswith("no signal above chance") for problem in problems)
    assert taken <= 8
