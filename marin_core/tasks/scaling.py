"""Tasks of the scaling suite: artifacts to the tables and numbers of `marin_core.scaling`, and back."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from marin_core.build import Build, Outcome
from marin_core.graph import heldout_run
from marin_core.recipes import ScalingRecipe, TokenLaw, TrainPlan, format_budget
from marin_core.scaling import (
    Bootstrap,
    Curve,
    Interval,
    IsoFlop,
    LossLaw,
    bootstrap,
    fit_isoflop,
    fit_loss_law,
    fit_token_law,
)
from marin_core.scaling.figures import encode, isoflop_figure, law_figure
from marin_core.store import ArtifactRecord
from marin_core.store.store import utc_now


def list_candidates(build: Build) -> Outcome:
    config = build.spec.config
    recipe = ScalingRecipe.from_json(config["recipe"])
    rows = [{"cell": c.key, **c.to_json()} for flops in config["fit_budgets"] for c in recipe.candidates(flops)]
    build.writer.write_json("candidates.json", rows)
    return Outcome({"cells": len(rows), "budgets": [format_budget(c) for c in config["fit_budgets"]]})


def collect_runs(build: Build) -> Outcome:
    cells = [role for role in build.spec.inputs if role != "recipe"]
    records = [build.input(cell).record for cell in cells]
    runs = pl.DataFrame([_run_row(record) for record in records], infer_schema_length=None)
    with build.writer.open("runs.parquet") as file:
        runs.write_parquet(file)
    diverged = sorted(runs.filter(pl.col("status") == "diverged")["cell"])
    seconds = sum(record.summary["train_seconds"] for record in records)
    return Outcome({"runs": len(runs), "diverged": diverged, "train_seconds": round(seconds, 1)})


def fit_isoflops(build: Build) -> Outcome:
    fits = [_fit(curve) for curve in _curves(_runs(build))]
    build.writer.write_json("isoflop.json", [fit.to_json() for fit in fits])
    flagged = {format_budget(fit.flops): fit.problem for fit in fits if fit.problem}
    for budget, problem in flagged.items():
        build.log(f"budget {budget} is left out of the laws: {problem}")
    minima = {
        format_budget(f.flops): {"tokens": f.optimal_tokens, "params": f.optimal_params, "loss": f.optimal_loss}
        for f in fits
        if not f.problem
    }
    return Outcome({"minima": minima, "flagged": flagged})


def fit_laws(build: Build) -> Outcome:
    fits = [fit for fit in _fits(build) if not fit.problem]
    optima = {fit.flops: float(fit.optimal_loss or 0) for fit in fits}
    budgets = list(optima)
    tokens = fit_token_law(budgets, [float(fit.optimal_tokens or 0) for fit in fits])
    law = fit_loss_law(budgets, list(optima.values()))
    resampled = bootstrap(optima, _curves(_runs(build)))
    build.writer.write_json(
        "scaling_law.json",
        {
            "budgets": budgets,
            "token_law": dataclasses.asdict(tokens),
            "loss_law": {**dataclasses.asdict(law), "coefficient": law.coefficient},
            "irreducible_interval": dataclasses.asdict(resampled.irreducible()),
            "exponent_interval": dataclasses.asdict(resampled.exponent()),
        },
    )
    with build.writer.open("resampled_laws.parquet") as file:
        resampled.table().write_parquet(file)
    summary = {
        "token_law": f"D* = {tokens.coefficient:.4g} * C^{tokens.exponent:.4f}",
        "loss_law": f"L = {law.irreducible:.4g} + {law.coefficient:.4g} * C^-{law.exponent:.4f}",
        "budgets": len(budgets),
        "irreducible_interval": dataclasses.asdict(resampled.irreducible()),
        "exponent_interval": dataclasses.asdict(resampled.exponent()),
    }
    return Outcome(summary)


def forecast(build: Build) -> Outcome:
    budget = build.spec.config["heldout_budget"]
    recipe = ScalingRecipe.from_json(build.spec.config["recipe"])
    laws = build.input("scaling_law").read_json("scaling_law.json")
    chosen = recipe.optimal(budget, TokenLaw(**laws["token_law"]))
    law = _loss_law(laws)
    interval = _resampled(build).loss(budget)
    registered = utc_now()
    result = {
        "flops": budget,
        "predicted_loss": law.loss(budget),
        "interval": dataclasses.asdict(interval),
        "registered": registered,
        "run": {"cell": chosen.key, **chosen.to_json()},
    }
    build.writer.write_json("forecast.json", result)
    build.log(
        f"forecast for {format_budget(budget)} FLOPs ({chosen.key}): loss {law.loss(budget):.4f}, "
        f"95 % interval {interval.low:.4f} to {interval.high:.4f}"
    )
    return Outcome({k: v for k, v in result.items() if k != "run"} | {"cell": chosen.key})


def collect_heldout(build: Build) -> Outcome:
    record = build.store.artifact(heldout_run(build.spec, build.store)).record
    result = {**_run_row(record), "started": record.provenance.started, "ended": record.provenance.ended}
    build.writer.write_json("heldout.json", result)
    return Outcome(result)


def judge(build: Build) -> Outcome:
    promised = build.input("forecast").read_json("forecast.json")
    happened = build.input("heldout").read_json("heldout.json")
    actual, predicted = happened["eval_loss"], promised["predicted_loss"]
    interval = Interval(**promised["interval"])
    verdict = {
        "predicted_loss": predicted,
        "interval": promised["interval"],
        "actual_loss": actual,
        "error_percent": None if actual is None else 100 * (actual - predicted) / predicted,
        "inside_interval": actual is not None and actual in interval,
        "registered_before_run": promised["registered"] < happened["started"],
        "run_status": happened["status"],
        "cell": happened["cell"],
    }
    build.writer.write_json("verdict.json", verdict)
    build.log(_verdict_line(verdict))
    return Outcome(verdict)


def draw_figures(build: Build) -> Outcome:
    fits, laws = _fits(build), build.input("scaling_law").read_json("scaling_law.json")
    verdict = build.input("verdict").read_json("verdict.json")
    promised = build.input("forecast").read_json("forecast.json")
    resampled = _resampled(build)
    band = [(c, resampled.loss(c)) for c in np.geomspace(min(laws["budgets"]), promised["flops"] * 2, 40)]
    figures = {
        "isoflop": isoflop_figure(_runs(build), fits),
        "scaling_law": law_figure(
            fits, _loss_law(laws), band, promised["flops"], Interval(**promised["interval"]), verdict["actual_loss"]
        ),
    }
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            with build.writer.open(f"{name}.{kind}") as file:
                file.write(encode(figure, kind))
    return Outcome({"figures": sorted(figures)})


def tabulate(build: Build) -> Outcome:
    heldout = build.input("heldout").read_json("heldout.json")
    heldout_row = {k: v for k, v in heldout.items() if k not in ("started", "ended")}
    runs = _runs(build).with_columns(kind=pl.lit("isoflop"))
    held_out = pl.DataFrame([heldout_row], schema_overrides=_runs(build).schema).with_columns(kind=pl.lit("held-out"))
    table = pl.concat([runs, held_out], how="diagonal")  # a diverged run has no evaluations
    with build.writer.open("runs.parquet") as file:
        table.write_parquet(file)
    return Outcome({"rows": len(table), "columns": table.columns})


def _run_row(record: ArtifactRecord) -> dict[str, Any]:
    """One run as a row: its plan's numbers and its results, no timings, so that equal runs give equal tables."""
    plan = TrainPlan.from_json(dict(record.payload["config"]["plan"]))
    summary = record.summary
    evals = {k.removeprefix("eval/").replace("/", "_"): v for k, v in sorted(summary["evals"].items())}
    return {
        "cell": record.partition,
        "flops": plan.flops,
        "hidden_dim": plan.hidden_dim,
        "num_layers": plan.num_layers,
        "num_heads": plan.num_heads,
        "batch_size": plan.batch_size,
        "seq_len": plan.seq_len,
        "steps": plan.steps,
        "tokens": plan.tokens,
        "params": plan.params,
        "learning_rate": plan.optimizer.learning_rate,
        "adam_lr": plan.optimizer.adam_lr,
        "beta2": plan.optimizer.beta2,
        "status": summary["status"],
        "train_loss": summary["train_loss"],
        "eval_loss": summary["eval_loss"],
        **{f"eval_{name}": value for name, value in evals.items() if name not in ("macro_loss", "loss")},
        "run": record.fingerprint,
    }


def _runs(build: Build) -> pl.DataFrame:
    return pl.read_parquet(build.input("suite").read("runs.parquet"))


def _curves(runs: pl.DataFrame) -> list[Curve]:
    """Finished runs by budget; diverged ones do not take part."""
    finished = runs.filter(pl.col("status") == "succeeded").sort("flops", "tokens")
    budgets = sorted(runs["flops"].unique())
    by_budget = {c: finished.filter(pl.col("flops") == c) for c in budgets}
    return [Curve(c, list(t["tokens"]), list(t["params"]), list(t["eval_loss"])) for c, t in by_budget.items()]


def _fit(curve: Curve) -> IsoFlop:
    return fit_isoflop(curve.flops, curve.tokens, curve.params, curve.losses)


def _fits(build: Build) -> list[IsoFlop]:
    return [IsoFlop.from_json(fit) for fit in build.input("isoflop").read_json("isoflop.json")]


def _resampled(build: Build) -> Bootstrap:
    return Bootstrap.from_table(pl.read_parquet(build.input("scaling_law").read("resampled_laws.parquet")))


def _loss_law(laws: dict[str, Any]) -> LossLaw:
    return LossLaw(**{k: v for k, v in laws["loss_law"].items() if k != "coefficient"})


def _verdict_line(verdict: dict[str, Any]) -> str:
    if verdict["actual_loss"] is None:
        return f"verdict: the held-out run {verdict['cell']} {verdict['run_status']}; there is no loss to compare"
    place = "inside" if verdict["inside_interval"] else "outside"
    return (
        f"verdict: predicted {verdict['predicted_loss']:.4f}, happened {verdict['actual_loss']:.4f} "
        f"({verdict['error_percent']:+.2f} %), {place} the 95 % interval"
    )
