"""Tasks of the evaluations of a whole suite: one table of all scores, and the forecast of tasks in two steps."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl

from marin_core.build import Build, Outcome
from marin_core.graph import heldout_evals
from marin_core.scaling import IsoFlop, Scored, forecast_task
from marin_core.scaling.task_metrics import TaskMetrics, metrics_of
from marin_core.scaling.task_report import TaskReport
from marin_core.store import ArtifactSpec, canonical_json, digest
from marin_core.tasks.suite_tables import note_inputs, read_fits, read_runs

# Inputs of the table that are no evaluated run.
_TABLES = ("suite", "heldout")
_PARALLEL_READS = 8
_RUN_COLUMNS = ("cell", "seed", "flops", "hidden_dim", "params", "tokens", "excluded", "wandb_url")


def collect_suite_evals(build: Build) -> Outcome:
    """`evals.parquet`: every metric of every evaluation of the ladder's runs (`kind` isoflop) and of the held-out runs
    (held-out), with what the run is."""
    evaluated = {role: spec for role, spec in build.spec.inputs.items() if role not in _TABLES}
    heldout = heldout_evals(build.spec, build.store)
    note_inputs(build, heldout)
    evaluated |= heldout
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        tables = list(pool.map(lambda key: _read_evals(build, key, evaluated[key]), evaluated))
    evals = pl.concat(tables, how="diagonal").join(_all_runs(build), on="partition", how="left", maintain_order="left")
    with build.writer.open("evals.parquet") as file:
        evals.write_parquet(file)
    failed = evals.filter(pl.col("status") != "succeeded").select("partition", "evaluation", "status").unique()
    summary = {
        "runs": len(evaluated),
        "evaluations": sorted(evals["evaluation"].unique()),
        "rows": len(evals),
        "failed": [f"{p} {e}: {s}" for p, e, s in sorted(failed.iter_rows())],
    }
    # Equal scores are equal wherever the runs' pages are.
    return Outcome(summary, content=digest(canonical_json(evals.drop("wandb_url").to_dicts())))


def forecast_downstream(build: Build) -> Outcome:
    """`downstream.json`, and `downstream.parquet` to plot it: every task with a soft and a hard metric.

    Config: `heldout_budgets`, and `external`, models of others that join the second step: rows of evaluation, model,
    soft, hard and, where known, examples. Held-out runs take part in neither step; they are what the forecast is
    compared with.
    """
    config = build.spec.config
    evals = pl.read_parquet(build.input("evals").read("evals.parquet"))
    optimal = _optimal_cells(evals, read_fits(build))
    reports, without = [], {}
    for evaluation in sorted(evals["evaluation"].unique()):
        own = _own_config(build, evaluation)
        if own.get("endpoint"):
            without[evaluation] = f"it asks the model at {own['endpoint']}, which is none of ours"
            continue
        chosen = metrics_of(evals.filter(pl.col("evaluation") == evaluation), own)
        if isinstance(chosen, str):
            without[evaluation] = chosen
            continue
        external = [row for row in config["external"] if row["evaluation"] == evaluation]
        scores = chosen.scores(evals.filter(pl.col("evaluation") == evaluation))
        reports.append(_report(evaluation, chosen, scores, external, optimal, config["heldout_budgets"]))
        for line in reports[-1].lines():
            build.log(line)
    result = {"evaluations": [report.to_json() for report in reports], "without_forecast": without}
    build.writer.write_json("downstream.json", result)
    with build.writer.open("downstream.parquet") as file:
        TaskReport.tables(reports).write_parquet(file)
    summary = {report.evaluation: report.summary() for report in reports}
    return Outcome({"tasks": summary, "without_forecast": without})


def _read_evals(build: Build, key: str, spec: ArtifactSpec) -> pl.DataFrame:
    """The scores of a run under its key here; what was recorded is the key that it was evaluated under first."""
    table = pl.read_parquet(build.store.artifact(spec).read("evals.parquet"))
    return table.with_columns(partition=pl.lit(key))


def _all_runs(build: Build) -> pl.DataFrame:
    """What a score is shown with: the runs of the suite and the held-out ones, by partition."""
    suite = read_runs(build).with_columns(partition=pl.col("cell"), kind=pl.lit("isoflop"))
    rows = [
        {"excluded": None, "kind": "held-out", **row}
        for row in build.input("heldout").read_json("heldout.json")["runs"]
    ]
    columns = ["partition", "kind", *_RUN_COLUMNS]
    schema = {name: suite.schema[name] for name in columns}
    heldout = pl.DataFrame([{name: row[name] for name in columns} for row in rows], schema=schema)
    return pl.concat([suite.select(columns), heldout])


def _optimal_cells(evals: pl.DataFrame, fits: Sequence[IsoFlop]) -> dict[str, list[str]]:
    """By evaluation, of each usable budget the evaluated run that is nearest to its minimum in log tokens."""
    usable = evals.filter((pl.col("kind") == "isoflop") & pl.col("excluded").is_null(), pl.col("status") == "succeeded")
    chosen: dict[str, list[str]] = {}
    for fit in fits:
        if fit.optimal_tokens is None:
            continue
        distance = (pl.col("tokens").log10() - np.log10(fit.optimal_tokens)).abs()
        nearest = usable.filter(pl.col("flops") == fit.flops).sort(distance).group_by("evaluation", maintain_order=True)
        for evaluation, partition in nearest.first().select("evaluation", "partition").iter_rows():
            chosen.setdefault(evaluation, []).append(partition)
    return chosen


def _own_config(build: Build, evaluation: str) -> Mapping[str, Any]:
    """What the profile says of a task: `soft_metric` and `metric` as `soft` and `hard`, and its `endpoint`."""
    evaluated = [spec for spec in build.spec.inputs["evals"].inputs.values() if evaluation in spec.inputs]
    own = evaluated[0].inputs[evaluation].config if evaluated else {}
    return {"soft": own.get("soft_metric"), "hard": own.get("metric"), "endpoint": own.get("endpoint")}


def _report(
    evaluation: str,
    metrics: TaskMetrics,
    scores: pl.DataFrame,
    external: Sequence[Mapping[str, Any]],
    optimal: Mapping[str, list[str]],
    budgets: Sequence[float],
) -> TaskReport:
    ladder = scores.filter((pl.col("kind") == "isoflop") & pl.col("excluded").is_null())
    best = ladder.filter(pl.col("partition").is_in(optimal.get(evaluation, [])))
    others = [
        Scored(row["model"], None, metrics.sign * row["soft"], row["hard"], examples=row.get("examples"))
        for row in external
    ]
    models = [*_scored(ladder, metrics), *others]
    forecast = forecast_task(list(_scored(best, metrics)), models, metrics.chance)
    heldout = scores.filter(pl.col("kind") == "held-out")
    return TaskReport(
        evaluation=evaluation,
        metrics=metrics.to_json(),
        sign=metrics.sign,
        forecast=forecast,
        budgets=tuple(sorted(budgets)),
        optimal=tuple(_scored(best, metrics)),
        models=tuple(models),
        heldout=tuple(_scored(heldout, metrics)),
        pages={row["partition"]: row["wandb_url"] for row in scores.to_dicts()},
    )


def _scored(scores: pl.DataFrame, metrics: TaskMetrics) -> Iterator[Scored]:
    for row in scores.sort("flops", "tokens").to_dicts():
        yield Scored(
            row["partition"],
            row["flops"],
            metrics.sign * row["soft"],
            row["hard"],
            cost_stderr=row["soft_stderr"],
            examples=row["examples"],
        )
