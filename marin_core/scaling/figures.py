"""The two figures of a suite: IsoFLOP curves, and the loss law with the held-out run. PNG and SVG bytes."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from marin_core.recipes import format_budget
from marin_core.scaling.bootstrap import Interval
from marin_core.scaling.isoflop import IsoFlop
from marin_core.scaling.laws import LossLaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _GRID, _HELDOUT = "#1f2933", "#d9dee3", "#c2410c"


def isoflop_figure(runs: pl.DataFrame, fits: Sequence[IsoFlop]) -> "Figure":
    """Loss against tokens, one curve per budget, minima marked; flagged budgets dashed.

    `runs` has one row per run: flops, tokens, eval_loss, status.
    """
    figure, axes = _canvas("Training tokens", "Validation loss (nats per token)")
    colours = _colours(len(fits))
    for fit, colour in zip(fits, colours, strict=True):
        mine = runs.filter((pl.col("flops") == fit.flops) & (pl.col("status") == "succeeded")).sort("tokens")
        label = f"{format_budget(fit.flops)} FLOPs" + (f" (left out: {fit.problem})" if fit.problem else "")
        axes.plot(mine["tokens"], mine["eval_loss"], "o", color=colour, markersize=5, label=label)
        if len(mine) >= 3 and any(fit.coefficients):
            grid = np.geomspace(mine["tokens"].min(), mine["tokens"].max(), 100)  # type: ignore[arg-type]
            style = "--" if fit.problem else "-"
            axes.plot(grid, [fit.loss(t) for t in grid], style, color=colour, linewidth=1.5)
        if fit.optimal_tokens and fit.optimal_loss:
            axes.plot(fit.optimal_tokens, fit.optimal_loss, "*", color=colour, markersize=13, markeredgecolor="white")
    axes.set_xscale("log")
    axes.set_title("IsoFLOP curves: the best model of each budget", loc="left", color=_INK)
    axes.legend(frameon=False, fontsize=8)
    return figure


def law_figure(
    fits: Sequence[IsoFlop],
    law: LossLaw,
    band: Sequence[tuple[float, Interval]],
    heldout_budget: float,
    predicted: Interval,
    actual: float | None,
) -> "Figure":
    """Loss against compute: minima, fitted law with its 95 % band, the forecast and what happened."""
    figure, axes = _canvas("Compute (FLOPs)", "Validation loss (nats per token)")
    used = [fit for fit in fits if fit.optimal_loss is not None]
    budgets = [c for c, _ in band]
    axes.fill_between(
        budgets,
        [i.low for _, i in band],
        [i.high for _, i in band],
        color="#93b5d1",
        alpha=0.35,
        linewidth=0,
        label="95 % interval",
    )
    formula = f"L = {law.irreducible:.2f} + {law.coefficient:.3g} · C^-{law.exponent:.3f}"
    axes.plot(budgets, [law.loss(c) for c in budgets], color="#2b6a99", linewidth=1.5, label=formula)
    axes.plot(
        [f.flops for f in used], [f.optimal_loss for f in used], "*", color=_INK, markersize=11, label="IsoFLOP minima"
    )
    middle = law.loss(heldout_budget)
    error = [[max(0.0, middle - predicted.low)], [max(0.0, predicted.high - middle)]]
    axes.errorbar(
        [heldout_budget],
        [middle],
        yerr=error,
        fmt="o",
        markerfacecolor="white",
        markersize=13,
        color=_HELDOUT,
        capsize=5,
        label="forecast",
    )
    if actual is not None:
        axes.plot(
            [heldout_budget],
            [actual],
            "X",
            color=_HELDOUT,
            markersize=8,
            zorder=5,
            label="held-out run",
        )
    axes.set_xscale("log")
    axes.set_title("Scaling law and the run it had not seen", loc="left", color=_INK)
    axes.legend(frameon=False, fontsize=8)
    return figure


def encode(figure: "Figure", kind: str) -> bytes:
    """`png` or `svg` bytes; the same figure gives the same bytes.

    A PNG gets a palette: it travels inside Dagster's events, which are kept for ever.
    """
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=100, metadata=metadata)
    if kind == "svg":
        return buffer.getvalue()
    from PIL import Image

    small = io.BytesIO()
    Image.open(buffer).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def _canvas(x_label: str, y_label: str) -> tuple["Figure", Any]:
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "marin"
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x_label, color=_INK)
    axes.set_ylabel(y_label, color=_INK)
    axes.grid(True, which="major", color=_GRID, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](v) for v in np.linspace(0.05, 0.8, max(count, 1))][:count]
