"""Arms against each other: what the numbers must be, whatever the losses are."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_core.records.comparison import Comparison, compare, differing_settings
from marin_core.records.experiment import DifferenceForecast, forecast_of

EARLY, REGISTERED, LATE = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"
FORECAST = DifferenceForecast(first="a", second="b", low=-0.5, high=0.5)
# None is a run that diverged. Powers of two, so that sums are exact.
LOSSES = st.lists(st.one_of(st.none(), st.integers(0, 64).map(lambda n: n / 8)), min_size=2, max_size=2)
TWO_ARMS = st.lists(LOSSES, min_size=1, max_size=5)


def rows(losses: Mapping[str, Sequence[float | None]], began: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Runs, an arm's in pairs; without a loss they diverged."""
    return [
        {
            "arm": arm,
            "pair": pair,
            "cell": f"cell-{pair}",
            "partition": f"cell-{pair}-{arm}",
            "status": "diverged" if loss is None else "succeeded",
            "loss": loss,
            "began": (began or {}).get(arm, LATE),
        }
        for arm, of_arm in losses.items()
        for pair, loss in enumerate(of_arm)
    ]


def compared(losses: Mapping[str, Sequence[float | None]], forecast: DifferenceForecast = FORECAST) -> Comparison:
    return compare(forecast, rows(losses), REGISTERED)


@given(TWO_ARMS)
def test_the_difference_the_other_way_round_is_its_negative(pairs: list[list[float | None]]) -> None:
    a, b = [first for first, _ in pairs], [second for _, second in pairs]
    here, there = compared({"a": a, "b": b}), compared({"a": b, "b": a})
    assert there.differences == [-value for value in here.differences]
    assert there.difference == (None if here.difference is None else -here.difference)


@given(TWO_ARMS)
def test_only_pairs_in_which_both_came_to_an_end_count(pairs: list[list[float | None]]) -> None:
    a, b = [first for first, _ in pairs], [second for _, second in pairs]
    whole = [(x, y) for x, y in pairs if x is not None and y is not None]
    result = compared({"a": a, "b": b})
    assert result.differences == [x - y for x, y in whole]
    assert len(result.pairs) == len(pairs)
    assert sorted(result.diverged) == sorted(row["partition"] for row in rows({"a": a, "b": b}) if row["loss"] is None)
    ended = [x for x in a if x is not None]
    assert result.means["a"] == (statistics.fmean(ended) if ended else None)
    assert result.summary()["pairs_compared"] == f"{len(whole)} of {len(pairs)}"


@given(TWO_ARMS, st.permutations(range(10)))
def test_the_order_of_the_runs_does_not_matter(pairs: list[list[float | None]], order: list[int]) -> None:
    found = rows({"a": [first for first, _ in pairs], "b": [second for _, second in pairs]})
    shuffled = [found[n] for n in order if n < len(found)]
    expected, result = compare(FORECAST, found, REGISTERED), compare(FORECAST, shuffled, REGISTERED)
    assert result.pairs == expected.pairs
    assert result.difference == expected.difference


@pytest.mark.parametrize(
    ("difference", "held"), [(-0.5, True), (0.5, True), (0.0, True), (0.5625, False), (-0.625, False)]
)
def test_the_edges_of_the_interval_are_inside(difference: float, held: bool) -> None:
    assert compared({"a": [4 + difference], "b": [4.0]}).forecast_held == held


def test_a_forecast_of_what_nothing_came_of_did_not_hold() -> None:
    result = compared({"a": [None, 3.0], "b": [3.0, None]})
    assert (result.difference, result.forecast_held) == (None, False)
    assert result.diverged == ["cell-0-a", "cell-1-b"]


def test_of_several_arms_the_best_is_compared() -> None:
    forecast = dataclasses.replace(FORECAST, second=("b", "c"))
    result = compared({"a": [3.0, 4.0], "b": [3.5, 4.5], "c": [3.25, 4.25]}, forecast)
    assert (result.second, result.differences) == ("c", [-0.25, -0.25])


def test_an_arm_is_not_the_best_for_having_lost_the_hard_pair() -> None:
    forecast = dataclasses.replace(FORECAST, second=("b", "c"))
    result = compared({"a": [3.0, 4.0], "b": [3.5, 4.5], "c": [2.0, None]}, forecast)
    assert result.second == "b"


@pytest.mark.parametrize(
    ("began", "first"),
    [
        ({}, True),
        # The other side's runs, for instance the ladder's own, may have been there.
        ({"a": EARLY}, True),
        ({"b": EARLY}, True),
        ({"b": EARLY, "c": EARLY}, True),
        ({"a": EARLY, "b": EARLY}, False),
        ({"a": EARLY, "c": EARLY}, False),
        ({"a": REGISTERED, "b": REGISTERED, "c": REGISTERED}, False),
    ],
)
def test_the_forecast_is_before_all_runs_of_one_side(began: dict[str, str], first: bool) -> None:
    forecast = dataclasses.replace(FORECAST, second=("b", "c"))
    found = rows({"a": [3.0, 3.0], "b": [3.0, 3.0], "c": [3.0, 3.0]}, began)
    assert compare(forecast, found, REGISTERED).registered_first == first


@pytest.mark.parametrize("second", ["b", ("b", "c")])
def test_a_forecast_survives_its_registration(second: str | tuple[str, ...]) -> None:
    forecast = dataclasses.replace(FORECAST, second=second)
    assert forecast_of(forecast.to_json()) == forecast


def test_settings_are_told_where_they_differ_and_only_there() -> None:
    plans = {
        "a": {"seed": 0, "precision": "f32", "optimizer": {"learning_rate": 0.1, "adam_lr": 0.2}},
        "b": {"seed": 0, "precision": "f32", "optimizer": {"learning_rate": 0.3, "weight_decay": 0.1}},
    }
    assert differing_settings(plans) == {
        "optimizer.learning_rate": {"a": 0.1, "b": 0.3},
        "optimizer.adam_lr": {"a": 0.2, "b": None},
        "optimizer.weight_decay": {"a": None, "b": 0.1},
    }
