"""The figures of a suite, as PNG and SVG."""

import re

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.scaling import Interval, LossLaw
from marin_core.scaling.downstream_figure import downstream_figure
from marin_core.scaling.figures import encode, isoflop_figure, law_figure
from marin_core.scaling.plot_tables import law_grid
from marin_core.tasks.suite_tables import read_constants, read_fits, read_resamples, read_runs


def draw_figures(build: Build) -> Outcome:
    """`isoflop`, `scaling_law`, and `downstream_<task>` of each task with both metrics."""
    fits, constants = read_fits(build), read_constants(build)
    forecasts = build.input("forecast").read_json("forecast.json")["forecasts"]
    runs = build.input("heldout").read_json("heldout.json")["runs"]
    resampled = read_resamples(build)
    grid = law_grid(min(constants["budgets"]), max(each["flops"] for each in forecasts))
    figures = {
        "isoflop": isoflop_figure(read_runs(build), fits),
        "scaling_law": law_figure(
            fits,
            LossLaw.from_json(constants["loss_law"]),
            [(c, resampled.loss(c)) for c in grid],
            [(each["flops"], Interval(**each["interval"])) for each in forecasts],
            [(run["flops"], run["eval_loss"]) for run in runs if run["eval_loss"] is not None],
        ),
        **_downstream(build),
    }
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            with build.writer.open(f"{name}.{kind}") as file:
                file.write(encode(figure, kind))
    return Outcome({"figures": sorted(figures)})


def _downstream(build: Build) -> dict:
    downstream = build.input("downstream")
    rows = pl.read_parquet(downstream.read("downstream.parquet"))
    figures = {}
    for task in downstream.read_json("downstream.json")["evaluations"]:
        mine = rows.filter(pl.col("evaluation") == task["evaluation"])
        metrics = task["metrics"]
        if len(mine):
            soft = f"{metrics['soft']} ({metrics['soft_unit']})" if metrics["soft_unit"] else metrics["soft"]
            name = re.sub(r"\W+", "_", task["evaluation"])
            figures[f"downstream_{name}"] = downstream_figure(mine, soft, metrics["hard"], metrics["chance"])
    return figures
