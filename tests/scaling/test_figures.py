"""Figures: they encode, the same numbers give the same bytes, and a budget that was left out is still there."""

import numpy as np
import polars as pl
import pytest

from marin_core.scaling import Interval, IsoFlop, LossLaw, fit_isoflop
from marin_core.scaling.downstream_figure import downstream_figure
from marin_core.scaling.figures import encode, isoflop_figure, law_figure
from marin_core.scaling.task_report import SCHEMA

BUDGETS = (3e18, 9e18, 1.8e19)
LAW = LossLaw(irreducible=1.7, scale=1.5, exponent=0.1, reference=3e19)
BAND = [(float(c), Interval(LAW.loss(c) * 0.98, LAW.loss(c) * 1.02)) for c in np.geomspace(3e18, 2e21, 10)]
FORECASTS = [(c, Interval(LAW.loss(c) - 0.05, LAW.loss(c) + 0.05)) for c in (1e21, 1e22)]
SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml"}
EVERY_KIND = pytest.mark.parametrize("kind", SIGNATURES)


def runs_of(budget: float, curvature: float = 0.3, runs: int = 6, excluded: str | None = None) -> pl.DataFrame:
    x = np.linspace(-0.5, 0.5, runs)
    return pl.DataFrame(
        {
            "flops": [budget] * runs,
            "tokens": 1e9 * (budget / 3e18) ** 0.5 * 10**x,
            "params": 4e8 / 10**x,
            "eval_loss": LAW.loss(budget) + curvature * x**2,
            "excluded": pl.Series([excluded] * runs, dtype=pl.String),
        }
    )


def fit_of(runs: pl.DataFrame) -> IsoFlop:
    finished = runs.filter(pl.col("excluded").is_null())
    tokens, params, losses = (list(finished[name]) for name in ("tokens", "params", "eval_loss"))
    return fit_isoflop(runs["flops"][0], tokens, params, losses)


def isoflop_bytes(tables: list[pl.DataFrame], kind: str) -> bytes:
    return encode(isoflop_figure(pl.concat(tables), [fit_of(table) for table in tables]), kind)


def law_bytes(kind: str, actual: tuple[tuple[float, float], ...] = ((1e21, 2.758),), budgets: int = 1) -> bytes:
    fits = [fit_of(runs_of(budget)) for budget in BUDGETS]
    return encode(law_figure(fits, LAW, BAND, FORECASTS[:budgets], actual), kind)


@EVERY_KIND
def test_isoflop_curves_encode(kind: str) -> None:
    assert isoflop_bytes([runs_of(budget) for budget in BUDGETS], kind).startswith(SIGNATURES[kind])


@EVERY_KIND
def test_a_law_encodes(kind: str) -> None:
    assert law_bytes(kind).startswith(SIGNATURES[kind])


@EVERY_KIND
def test_the_same_runs_give_the_same_bytes(kind: str) -> None:
    tables = [runs_of(budget) for budget in BUDGETS]
    assert isoflop_bytes(tables, kind) == isoflop_bytes(tables, kind)


@EVERY_KIND
def test_the_same_law_gives_the_same_bytes(kind: str) -> None:
    assert law_bytes(kind) == law_bytes(kind)


@EVERY_KIND
def test_other_runs_give_other_bytes(kind: str) -> None:
    assert isoflop_bytes([runs_of(3e18)], kind) != isoflop_bytes([runs_of(3e18, curvature=0.6)], kind)


@pytest.mark.parametrize("label", ["3e18 FLOPs", "9e18 FLOPs", "1.8e19 FLOPs"])
def test_every_budget_is_labelled(label: str) -> None:
    assert label in isoflop_bytes([runs_of(budget) for budget in BUDGETS], "svg").decode()


def test_a_flagged_budget_is_still_drawn_and_says_why() -> None:
    tables = [runs_of(3e18), runs_of(9e18, curvature=-0.3)]
    figure = isoflop_figure(pl.concat(tables), [fit_of(table) for table in tables])
    points = [line for line in figure.axes[0].lines if line.get_linestyle() == "None" and line.get_marker() == "o"]
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert [len(line.get_xdata()) for line in points] == [6, 6]  # type: ignore[arg-type]
    assert len(dashed) == 1
    assert "9e18 FLOPs (left out: the parabola is not convex: no minimum)" in encode(figure, "svg").decode()


def test_a_budget_with_too_few_runs_is_still_drawn_and_says_why() -> None:
    text = isoflop_bytes([runs_of(3e18), runs_of(9e18, runs=3)], "svg").decode()
    assert "9e18 FLOPs (left out: 3 finished runs, at least 4 are needed)" in text


def test_a_budget_whose_runs_all_diverged_is_named() -> None:
    text = isoflop_bytes([runs_of(3e18), runs_of(9e18, excluded="diverged")], "svg").decode()
    assert "9e18 FLOPs (left out: 0 finished runs, at least 4 are needed)" in text


def test_only_usable_minima_are_marked() -> None:
    tables = [runs_of(3e18), runs_of(9e18, curvature=-0.3)]
    figure = isoflop_figure(pl.concat(tables), [fit_of(table) for table in tables])
    assert len([line for line in figure.axes[0].lines if line.get_marker() == "*"]) == 1


@pytest.mark.parametrize("text", ["IsoFLOP minima", "95 % interval", "forecast", "held-out run", "L = 1.70 + "])
def test_a_law_s_figure_names_what_it_shows(text: str) -> None:
    assert text in law_bytes("svg").decode()


def test_a_held_out_run_without_a_loss_is_not_drawn() -> None:
    assert "held-out run" not in law_bytes("svg", actual=()).decode()


def test_every_budget_has_its_forecast_and_every_seed_its_cross() -> None:
    fits, actual = [fit_of(runs_of(budget)) for budget in BUDGETS], [(1e21, 2.758), (1e21, 2.757), (1e22, 2.531)]
    axes = law_figure(fits, LAW, BAND, FORECASTS, actual).axes[0]
    (crosses,) = [line for line in axes.lines if line.get_marker() == "X"]
    circles = axes.containers[0].lines[0]  # type: ignore[attr-defined]
    assert list(zip(crosses.get_xdata(), crosses.get_ydata(), strict=True)) == actual  # type: ignore[arg-type]
    assert list(circles.get_xdata()) == [1e21, 1e22]
    assert "held-out runs" in law_bytes("svg", tuple(actual), budgets=2).decode()


def test_a_run_that_is_left_out_is_marked_and_takes_no_part() -> None:
    tables = [runs_of(3e18), runs_of(3e18, runs=2, excluded="by hand")]
    axes = isoflop_figure(pl.concat(tables), [fit_of(tables[0])]).axes[0]
    (left_out,) = [line for line in axes.lines if line.get_marker() == "x"]
    (points,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert (len(left_out.get_xdata()), len(points.get_xdata())) == (2, 6)  # type: ignore[arg-type]


def test_a_task_s_figure_has_both_steps_and_what_happened() -> None:
    blank = dict.fromkeys(SCHEMA)
    model = {**blank, "evaluation": "mmlu", "soft": 1.2, "hard": 0.3}
    rows = [
        {**model, "kind": "compute-optimal", "name": "3e18-d1024", "flops": 3e18},
        {**model, "kind": "external", "name": "other", "hard": 0.4},
        *({**model, "kind": "law", "flops": c, "soft_low": 1.1, "soft_high": 1.3} for c in (3e18, 1e21)),
        *({**model, "kind": "sigmoid", "soft": s, "hard_low": 0.25, "hard_high": 0.35} for s in (1.0, 1.2)),
        {**model, "kind": "forecast", "flops": 1e21, "soft_low": 1.1, "soft_high": 1.3},
        {**model, "kind": "held-out", "name": "1e21-optimal", "flops": 1e21, "soft": 1.0, "hard": 0.5},
    ]
    figure = downstream_figure(pl.DataFrame(rows, schema=SCHEMA), "nats of the right choice", "acc", 0.25)
    over_compute, over_soft = figure.axes
    crosses = [next(line for line in axes.lines if line.get_marker() == "X") for axes in figure.axes]
    assert [(c.get_xdata()[0], c.get_ydata()[0]) for c in crosses] == [(1e21, 1.0), (1.0, 0.5)]  # type: ignore[index]
    assert (len(over_compute.containers), len(over_soft.containers)) == (1, 0)  # the score has no interval: none drawn
    text = encode(figure, "svg").decode()
    assert all(label in text for label in ("chance", "external", "compute-optimal models", "held-out run", "mmlu"))
