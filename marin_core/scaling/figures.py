"""The two figures of a suite: IsoFLOP curves, and the loss law with the held-out runs. PNG and SVG bytes."""

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

INK, LINE = "#1f2933", "#2b6a99"
_GRID, _MUTED, _BAND, _HELDOUT = "#d9dee3", "#8a94a0", "#93b5d1", "#c2410c"


def isoflop_figure(runs: pl.DataFrame, fits: Sequence[IsoFlop]) -> "Figure":
    """Loss against tokens, one curve per budget, minima marked; flagged budgets dashed.

    `runs` has one row per run: flops, tokens, eval_loss, and in excluded why it is left out, null if it is not.
    """
    figure, axes = _canvas("Training tokens", "Validation loss (nats per token)")
    colours = _colours(len(fits))
    for fit, colour in zip(fits, colours, strict=True):
        mine = runs.filter((pl.col("flops") == fit.flops) & pl.col("excluded").is_null()).sort("tokens")
        label = f"{format_budget(fit.flops)} FLOPs" + (f" (left out: {fit.problem})" if fit.problem else "")
        axes.plot(mine["tokens"], mine["eval_loss"], "o", color=colour, markersize=5, label=label)
        if len(mine) >= 3 and any(fit.coefficients):
            grid = np.geomspace(mine["tokens"].min(), mine["tokens"].max(), 100)  # type: ignore[arg-type]
            style = "--" if fit.problem else "-"
            axes.plot(grid, [fit.loss(t) for t in grid], style, color=colour, linewidth=1.5)
        if fit.optimal_tokens and fit.optimal_loss:
            axes.plot(fit.optimal_tokens, fit.optimal_loss, "*", color=colour, markersize=13, markeredgecolor="white")
    left_out = runs.filter(pl.col("excluded").is_not_null() & pl.col("eval_loss").is_not_null())
    if len(left_out):
        axes.plot(left_out["tokens"], left_out["eval_loss"], "x", color=_MUTED, markersize=6, label="runs left out")
    axes.set_xscale("log")
    axes.set_title("IsoFLOP curves: the best model of each budget", loc="left", color=INK)
    axes.legend(frameon=False, fontsize=8)
    return figure


def law_figure(
    fits: Sequence[IsoFlop],
    law: LossLaw,
    band: Sequence[tuple[float, Interval]],
    forecasts: Sequence[tuple[float, Interval]],
    actual: Sequence[tuple[float, float]],
) -> "Figure":
    """Loss against compute: minima, fitted law with its 95 % band, the forecasts by held-out budget, and the losses of
    the held-out runs (budget, loss), which may be several of a budget."""
    figure, axes = _canvas("Compute (FLOPs)", "Validation loss (nats per token)")
    used = [fit for fit in fits if fit.optimal_loss is not None]
    budgets = [c for c, _ in band]
    draw_band(axes, budgets, [i.low for _, i in band], [i.high for _, i in band])
    formula = f"L = {law.irreducible:.2f} + {law.coefficient:.3g} · C^-{law.exponent:.3f}"
    axes.plot(budgets, [law.loss(c) for c in budgets], color=LINE, linewidth=1.5, label=formula)
    axes.plot(
        [f.flops for f in used], [f.optimal_loss for f in used], "*", color=INK, markersize=11, label="IsoFLOP minima"
    )
    draw_forecasts(axes, [(c, law.loss(c), interval) for c, interval in forecasts])
    draw_heldout(axes, actual)
    axes.set_xscale("log")
    runs = "run it" if len(forecasts) == 1 else "runs it"
    axes.set_title(f"Scaling law and the {runs} had not seen", loc="left", color=INK)
    axes.legend(frameon=False, fontsize=8)
    return figure


def draw_band(axes: Any, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """A 95 % interval along a curve."""
    axes.fill_between(x, low, high, color=_BAND, alpha=0.35, linewidth=0, label="95 % interval")


def draw_forecasts(axes: Any, forecasts: Sequence[tuple[float, float, Interval]]) -> None:
    """Open circles with their intervals at (x, y, interval of y)."""
    if not forecasts:
        return
    x, y, intervals = zip(*forecasts, strict=True)
    error = [
        [max(0.0, middle - interval.low) for middle, interval in zip(y, intervals, strict=True)],
        [max(0.0, interval.high - middle) for middle, interval in zip(y, intervals, strict=True)],
    ]
    axes.errorbar(
        x,
        y,
        yerr=error,
        fmt="o",
        markerfacecolor="white",
        markersize=13,
        color=_HELDOUT,
        capsize=5,
        label="forecast",
    )


def draw_heldout(axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """Crosses at (x, y)."""
    if points:
        x, y = zip(*points, strict=True)
        label = "held-out run" if len(points) == 1 else "held-out runs"
        axes.plot(x, y, "X", color=_HELDOUT, markersize=8, zorder=5, label=label)


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
    figure, (axes,) = panels([(x_label, y_label)], width=7.2)
    return figure, axes


def panels(labels: Sequence[tuple[str, str]], width: float) -> tuple["Figure", Sequence[Any]]:
    """A figure so many inches wide, with a panel for each pair of axis labels, side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "marin"
    figure = Figure(figsize=(width, 4.6), layout="constrained")
    row = figure.subplots(1, len(labels), squeeze=False)[0]
    for axes, (x_label, y_label) in zip(row, labels, strict=True):
        axes.set_xlabel(x_label, color=INK)
        axes.set_ylabel(y_label, color=INK)
        axes.grid(True, which="major", color=_GRID, linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, row


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](v) for v in np.linspace(0.05, 0.8, max(count, 1))][:count]
