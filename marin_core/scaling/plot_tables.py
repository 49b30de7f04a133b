"""The tables behind the figures of a suite: one for each, ready to plot, every row with its run's page or none."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from marin_core.recipes import format_budget
from marin_core.scaling.bootstrap import Bootstrap
from marin_core.scaling.isoflop import IsoFlop
from marin_core.scaling.laws import LossLaw

_POINTS = 60
_FIRST = ("kind", "name", "flops", "tokens", "params", "eval_loss")
_LAST = ("excluded", "run", "wandb_url")


def ladder_table(runs: pl.DataFrame, fits: Sequence[IsoFlop], heldout: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Every run of the ladder, the minimum of every usable budget, and the held-out runs (rows of `heldout.json`)."""
    ladder = runs.with_columns(kind=pl.lit("isoflop"), name=pl.col("cell"))
    optima = pl.DataFrame([{"kind": "optimum", **row} for row in _minima(fits)])
    seen = _heldout_runs(heldout, runs.schema).with_columns(kind=pl.lit("held-out"))
    table = pl.concat([ladder, optima, seen], how="diagonal")
    middle = [name for name in table.columns if name not in (*_FIRST, *_LAST, "cell")]
    return table.select(*_FIRST, *middle, *_LAST)


def isoflop_table(runs: pl.DataFrame, fits: Sequence[IsoFlop]) -> pl.DataFrame:
    """The runs, the parabola of each budget that has one (`problem` where it is not used), and the minima."""
    columns = ("name", "flops", "tokens", "eval_loss", "excluded", "wandb_url")
    points = runs.with_columns(name=pl.col("cell"), tokens=pl.col("tokens").cast(pl.Float64))
    points = points.select(pl.lit("run").alias("kind"), *columns)
    curves = [
        {"kind": "curve", "name": format_budget(fit.flops), "flops": fit.flops, "tokens": t, "eval_loss": fit.loss(t)}
        | {"problem": fit.problem}
        for fit in fits
        if any(fit.coefficients)
        for t in _tokens_of(runs, fit.flops)
    ]
    minima = [{"kind": "minimum", **{k: v for k, v in row.items() if k != "params"}} for row in _minima(fits)]
    text = {"problem": pl.String, "tokens": pl.Float64}
    drawn = pl.DataFrame([*curves, *minima], infer_schema_length=None, schema_overrides=text)
    return pl.concat([points, drawn], how="diagonal").select("kind", *columns[:-1], "problem", "wandb_url")


def law_table(
    fits: Sequence[IsoFlop],
    law: LossLaw,
    resampled: Bootstrap,
    forecasts: Sequence[Mapping[str, Any]],
    heldout: Sequence[Mapping[str, Any]],
) -> pl.DataFrame:
    """Minima, the law with its 95 % band from the first budget to twice the last forecast, the forecasts (of
    `forecast.json`) and the held-out runs."""
    minima = [{"kind": "minimum", **_pick(row, "name", "flops", "eval_loss")} for row in _minima(fits)]
    last = max(forecast["flops"] for forecast in forecasts)
    first = min(row["flops"] for row in minima)
    band = [
        {"kind": "law", "name": None, "flops": c, "eval_loss": law.loss(c), **vars(resampled.loss(c))}
        for c in law_grid(first, last)
    ]
    foretold = [
        {"kind": "forecast", "name": f["run"]["cell"], "flops": f["flops"], "eval_loss": f["predicted_loss"]}
        | f["interval"]
        for f in forecasts
    ]
    seen = [
        {"kind": "held-out", "name": row["partition"], **_pick(row, "flops", "eval_loss", "wandb_url")}
        for row in heldout
    ]
    rows = [*minima, *band, *foretold, *seen]
    columns = ("kind", "name", "flops", "eval_loss", "low", "high", "wandb_url")
    text = ("kind", "name", "wandb_url")
    return pl.DataFrame(rows, schema={name: pl.String if name in text else pl.Float64 for name in columns})


def law_grid(first: float, last: float) -> list[float]:
    """Budgets at which a law is drawn: from `first` to twice `last`."""
    return [float(c) for c in np.geomspace(first, 2 * last, _POINTS)]


def thinned(table: pl.DataFrame, points: int) -> pl.DataFrame:
    """About so many rows of a long curve, the first and the last among them."""
    if len(table) <= points:
        return table
    return table[sorted({int(i) for i in np.linspace(0, len(table) - 1, points)})]


def _minima(fits: Sequence[IsoFlop]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{format_budget(fit.flops)}-minimum",
            "flops": fit.flops,
            "tokens": round(fit.optimal_tokens or 0),
            "params": round(fit.optimal_params or 0),
            "eval_loss": fit.optimal_loss,
        }
        for fit in fits
        if fit.optimal_loss is not None
    ]


def _heldout_runs(heldout: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    rows = [{"name": row["partition"], **{k: v for k, v in row.items() if k in schema}} for row in heldout]
    # A diverged run has no evaluations, and its losses are null.
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=schema)


def _tokens_of(runs: pl.DataFrame, flops: float) -> list[float]:
    tokens = runs.filter((pl.col("flops") == flops) & pl.col("excluded").is_null())["tokens"].to_numpy()
    return [float(t) for t in np.geomspace(tokens.min(), tokens.max(), _POINTS)]


def _pick(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
