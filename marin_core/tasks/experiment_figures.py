"""The figures of a comparison of arms."""

from typing import TYPE_CHECKING, Any

import polars as pl

from marin_core.records.comparison import Comparison
from marin_core.scaling.figures import INK, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Told apart by most who do not see all colours (Okabe and Ito).
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK]
_MARKERS = "osD^vPX"
_DASHES = ["-", "--", "-.", ":"]
# A curve is averaged over this share of a run: the loss of a step is that of a few sequences.
_SMOOTHED = 0.05
_MOST_PANELS = 4


def loss_curves(curves: pl.DataFrame) -> "Figure":
    """Training loss against tokens, a panel a cell, a curve an arm; a cross where a run diverged.

    `curves` has one row per step: arm, pair, cell, step, tokens, loss, and `status` of its run.
    """
    cells = curves.sort("pair")["cell"].unique(maintain_order=True).to_list()[:_MOST_PANELS]
    labels = [("Training tokens", "Training loss (nats per token)" if n == 0 else "") for n in range(len(cells))]
    figure, row = panels(labels, width=max(7.2, 3.6 * len(cells)))
    for axes, cell in zip(row, cells, strict=True):
        of_cell = curves.filter(pl.col("cell") == cell)
        for n, arm in enumerate(curves["arm"].unique(maintain_order=True)):
            _draw_run(axes, of_cell.filter(pl.col("arm") == arm).sort("step"), arm, n)
        axes.set_title(cell, loc="left", color=INK)
        axes.locator_params(axis="x", nbins=4)
        if cell == cells[-1] or "diverged" in of_cell["status"]:
            axes.legend(frameon=False, fontsize=8)
    return figure


def final_losses(comparison: Comparison) -> "Figure":
    """Validation loss after the last step, an arm's runs in one colour; what diverged has none."""
    figure, (axes,) = panels([("Cell", "Validation loss (nats per token)")], width=7.2)
    cells = [pair.cell for pair in comparison.pairs]
    arms = list(comparison.means)
    for n, arm in enumerate(arms):
        found = [(x, pair.losses[arm]) for x, pair in enumerate(comparison.pairs) if pair.losses[arm] is not None]
        # Side by side, so that equal losses do not hide each other.
        shift = 0.06 * (n - (len(arms) - 1) / 2)
        label = arm if len(found) == len(cells) else f"{arm} ({len(cells) - len(found)} of {len(cells)} diverged)"
        axes.plot(
            [x + shift for x, _ in found],
            [loss for _, loss in found],
            _MARKERS[n % len(_MARKERS)],
            color=_COLOURS[n % len(_COLOURS)],
            label=label,
        )
    axes.set_xticks(range(len(cells)), cells)
    axes.set_xlim(-0.5, len(cells) - 0.5)
    axes.set_title("After the last step", loc="left", color=INK)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_run(axes: Any, run: pl.DataFrame, arm: str, number: int) -> None:
    colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    finite = run.filter(pl.col("loss").is_finite())
    diverged = "diverged" in run["status"]
    label = f"{arm}, diverged at step {run['step'].max()}" if diverged else arm
    smooth = finite["loss"].rolling_mean(max(1, int(_SMOOTHED * len(run))), min_samples=1)
    axes.plot(finite["tokens"], smooth, dashes, color=colour, linewidth=1.4, label=label)
    if diverged and len(finite):
        axes.plot(finite["tokens"][-1], smooth[-1], "x", color=colour, markersize=9, markeredgewidth=2)


def named_figures(comparison: Comparison, curves: pl.DataFrame) -> dict[str, "Figure"]:
    """By the name of their files."""
    return {"loss_curves": loss_curves(curves), "final_losses": final_losses(comparison)}
