"""The figure of a downstream forecast: soft metric over compute, hard metric over soft metric."""

from typing import TYPE_CHECKING, Any

import polars as pl

from marin_core.scaling.bootstrap import Interval
from marin_core.scaling.figures import INK, LINE, draw_band, draw_forecasts, draw_heldout, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MODELS = {"model": ("o", "models"), "compute-optimal": ("*", "compute-optimal models"), "external": ("s", "external")}


def downstream_figure(rows: pl.DataFrame, soft: str, hard: str, chance: float) -> "Figure":
    """Both steps of one task. `rows` are those of `task_report.SCHEMA`; `soft` and `hard` label the axes."""
    figure, (over_compute, over_soft) = panels([("Compute (FLOPs)", soft), (soft, hard)], width=11.0)
    task = rows["evaluation"][0]
    law, sigmoid = (rows.filter(pl.col("kind") == kind) for kind in ("law", "sigmoid"))
    forecasts, heldout = (rows.filter(pl.col("kind") == kind) for kind in ("forecast", "held-out"))
    _curve(over_compute, law, "flops", "soft")
    _curve(over_soft, sigmoid, "soft", "hard")
    over_soft.axhline(chance, color=INK, linewidth=0.8, linestyle=":", label="chance")
    for axes, x, y in ((over_compute, "flops", "soft"), (over_soft, "soft", "hard")):
        for kind, (marker, label) in _MODELS.items():
            mine = rows.filter(pl.col("kind") == kind, pl.col(x).is_not_null())
            if len(mine):
                size = 11 if marker == "*" else 5
                axes.plot(mine[x], mine[y], marker, color=INK, markersize=size, alpha=0.8, label=label)
        foretold = forecasts.filter(pl.col(y).is_not_null(), pl.col(f"{y}_low").is_not_null())
        draw_forecasts(
            axes, [(row[x], row[y], Interval(row[f"{y}_low"], row[f"{y}_high"])) for row in foretold.to_dicts()]
        )
        draw_heldout(axes, list(heldout.select(x, y).iter_rows()))
        axes.legend(frameon=False, fontsize=8)
    over_compute.set_xscale("log")
    over_compute.set_title(f"{task}: the soft metric of the best models", loc="left", color=INK)
    over_soft.set_title("From the soft to the hard metric", loc="left", color=INK)
    return figure


def _curve(axes: Any, rows: pl.DataFrame, x: str, y: str) -> None:
    if not len(rows):
        return
    axes.plot(rows[x], rows[y], color=LINE, linewidth=1.5, label="fit")
    band = rows.filter(pl.col(f"{y}_low").is_not_null())
    draw_band(axes, list(band[x]), list(band[f"{y}_low"]), list(band[f"{y}_high"]))
