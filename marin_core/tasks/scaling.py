"""Tasks of the scaling suite, from the ladder to the laws: artifacts to the tables and numbers of `marin_core.scaling`,
and back."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.recipes import ScalingRecipe, TrainPlan, format_budget
from marin_core.scaling import (
    IsoFlop,
    bootstrap,
    find_outliers,
    fit_loss_law,
    fit_token_law,
    law_sentence,
    leave_one_out,
    sensitivity,
    token_law_sentence,
)
from marin_core.store import ArtifactRecord, canonical_json, digest
from marin_core.tasks.suite_tables import curves_of, fit_curve, read_fits, read_runs, run_row


def list_candidates(build: Build) -> Outcome:
    config = build.spec.config
    recipe = ScalingRecipe.from_json(config["recipe"])
    rows = [{"cell": c.key, **c.to_json()} for flops in config["fit_budgets"] for c in recipe.candidates(flops)]
    build.writer.write_json("candidates.json", rows)
    return Outcome({"cells": len(rows), "budgets": [format_budget(c) for c in config["fit_budgets"]]})


def collect_runs(build: Build) -> Outcome:
    """`runs.parquet`, one row a run. `excluded` says why a run stays out of the fits: what became of it, or what the
    config's `excluded` (cell -> reason) says of it."""
    said = build.spec.config.get("excluded", {})
    cells = [role for role in build.spec.inputs if role != "recipe"]
    records = {cell: build.input(cell).record for cell in cells}
    rows = [_suite_row(cell, record, said) for cell, record in records.items()]
    excluded = {row["cell"]: row["excluded"] for row in rows if row["excluded"]}
    for cell, reason in sorted(excluded.items()):
        build.log(f"run {cell} is left out of the fits: {reason}")
    # A column of nulls needs its type said.
    runs = pl.DataFrame(
        rows, infer_schema_length=None, schema_overrides={"excluded": pl.String, "wandb_url": pl.String}
    )
    with build.writer.open("runs.parquet") as file:
        runs.write_parquet(file)
    summary = {
        "runs": len(rows),
        "diverged": sorted(row["cell"] for row in rows if row["status"] == "diverged"),
        "excluded": excluded,
        "train_seconds": round(sum(record.summary["train_seconds"] for record in records.values()), 1),
    }
    # Equal runs are equal wherever their pages are.
    content = [{name: value for name, value in row.items() if name != "wandb_url"} for row in rows]
    return Outcome(summary, content=digest(canonical_json(content)))


def fit_isoflops(build: Build) -> Outcome:
    curves = curves_of(read_runs(build))
    fits = [fit_curve(curve) for curve in curves]
    outliers = find_outliers(curves, fits)
    build.writer.write_json("isoflop.json", [fit.to_json() for fit in fits])
    build.writer.write_json("outliers.json", [dataclasses.asdict(outlier) for outlier in outliers])
    flagged = {format_budget(fit.flops): fit.problem for fit in fits if fit.problem}
    for budget, problem in flagged.items():
        build.log(f"budget {budget} is left out of the laws: {problem}")
    for outlier in outliers:
        build.log(
            f"run {outlier.name} is {outlier.residual:+.3f} nats per token off its budget's curve; it stays in the "
            f"fit, which is robust to it"
        )
    minima = {
        format_budget(f.flops): {"tokens": f.optimal_tokens, "params": f.optimal_params, "loss": f.optimal_loss}
        for f in fits
        if not f.problem
    }
    outlying = {outlier.name: outlier.residual for outlier in outliers}
    return Outcome({"minima": minima, "flagged": flagged, "outliers": outlying})


def fit_laws(build: Build) -> Outcome:
    """`scaling_law.json`: the laws, their intervals, what they are made from and how much they depend on it. It is the
    one place of these numbers; forecasts, figures and documents are made from it."""
    runs, fits = read_runs(build), read_fits(build)
    constants, resampled = _constants(runs, fits)
    constants["outliers"] = build.input("isoflop").read_json("outliers.json")
    build.writer.write_json("scaling_law.json", constants)
    with build.writer.open("resampled_laws.parquet") as file:
        resampled.table().write_parquet(file)
    for sentence in (token_law_sentence(constants), law_sentence(constants)):
        build.log(sentence)
    token, loss = constants["token_law"], constants["loss_law"]
    summary = {
        "token_law": f"D* = {token['coefficient']:.4g} * C^{token['exponent']:.4f}",
        "loss_law": f"L = {loss['irreducible']:.4g} + {loss['coefficient']:.4g} * C^-{loss['exponent']:.4f}",
        "budgets": len(constants["budgets"]),
        **{name: value for name, value in constants.items() if name.endswith("_interval")},
        "leave_one_out_error_percent": {
            format_budget(row["flops"]): row["error_percent"]
            for row in constants["leave_one_out"]
            if row["error_percent"] is not None
        },
    }
    return Outcome(summary)


def _constants(runs: pl.DataFrame, fits: Sequence[IsoFlop]) -> tuple[dict[str, Any], Any]:
    used = [fit for fit in fits if not fit.problem]
    optima = {fit.flops: float(fit.optimal_loss or 0) for fit in used}
    optimal_tokens = {fit.flops: float(fit.optimal_tokens or 0) for fit in used}
    budgets = list(optima)
    token_law = fit_token_law(budgets, list(optimal_tokens.values()))
    law = fit_loss_law(budgets, list(optima.values()))
    resampled = bootstrap(optima, curves_of(runs), tokens=optimal_tokens)
    constants = {
        "budgets": budgets,
        "minima": [
            {
                "flops": fit.flops,
                "tokens": fit.optimal_tokens,
                "params": fit.optimal_params,
                "loss": fit.optimal_loss,
                "runs": fit.runs,
                "problem": fit.problem,
            }
            for fit in fits
        ],
        "excluded_runs": runs.filter(pl.col("excluded").is_not_null()).select("cell", "excluded").to_dicts(),
        "token_law": dataclasses.asdict(token_law),
        "loss_law": law.to_json(),
        "token_exponent_interval": dataclasses.asdict(resampled.token_exponent()),
        "irreducible_interval": dataclasses.asdict(resampled.irreducible()),
        "exponent_interval": dataclasses.asdict(resampled.exponent()),
        "leave_one_out": [row.to_json() for row in leave_one_out(optima)],
        "sensitivity": [row.to_json() for row in sensitivity(optima)],
    }
    return constants, resampled


def _suite_row(cell: str, record: ArtifactRecord, said: Mapping[str, str]) -> dict[str, Any]:
    plan = TrainPlan.from_json(dict(record.payload["config"]["plan"]))
    row = run_row(cell, record, plan)
    reason = said.get(cell) or exclusion(record.summary, plan)
    return {**row, "excluded": reason, "wandb_url": record.summary.get("wandb_url")}


def exclusion(summary: Mapping[str, Any], plan: TrainPlan) -> str | None:
    """Why a run stays out of the fits by itself; None if it takes part."""
    if summary["status"] != "succeeded":
        return f"{summary['status']} after {summary['steps']} of {plan.steps} steps"
    if summary["steps"] != plan.steps:
        return f"ended after {summary['steps']} of {plan.steps} steps"
    loss = summary["eval_loss"]
    if loss is None or not math.isfinite(loss):
        return "its evaluation has no loss"
    return None
