"""The suite as tables to plot: one Parquet file for each figure, and what their columns mean."""

from concurrent.futures import ThreadPoolExecutor

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.graph import heldout_runs
from marin_core.scaling import LossLaw
from marin_core.scaling.columns import describe
from marin_core.scaling.plot_tables import isoflop_table, ladder_table, law_table, thinned
from marin_core.store import ArtifactSpec
from marin_core.tasks.suite_tables import note_inputs, read_constants, read_fits, read_resamples, read_runs

_PARALLEL_READS = 8
# Enough for a curve on a page; the whole one lies beside the checkpoint.
_POINTS_OF_A_LOSS_CURVE = 500
_DESCRIPTIONS = {
    "ladder": "One row per training run, and the minimum of every IsoFLOP curve. `kind` is isoflop (a run of the "
    "ladder), optimum (a minimum) or held-out (a run that was forecast).",
    "isoflop_curves": "Loss over training tokens at each budget. `kind` is run, curve (a fitted parabola) or minimum.",
    "scaling_law": "Loss over compute. `kind` is minimum, law (with its 95 % band), forecast or held-out.",
    "evals": "Every metric of every evaluation of every run. `kind` is isoflop or held-out.",
    "downstream": "Both steps of the downstream forecast. `kind` is model, compute-optimal, external or held-out "
    "(measured), law (over compute), sigmoid (over the soft metric) or forecast.",
    "loss_curves": f"Training loss over steps, at most {_POINTS_OF_A_LOSS_CURVE} points of each run. `kind` is isoflop "
    "or held-out.",
}


def tabulate(build: Build) -> Outcome:
    """`<figure>.parquet`, and `figures.json`: a list of config, file, description, rows and columns (name, type, unit,
    meaning)."""
    runs, fits = read_runs(build), read_fits(build)
    heldout = build.input("heldout").read_json("heldout.json")["runs"]
    forecasts = build.input("forecast").read_json("forecast.json")["forecasts"]
    law = LossLaw.from_json(read_constants(build)["loss_law"])
    tables = {
        "ladder": ladder_table(runs, fits, heldout),
        "isoflop_curves": isoflop_table(runs, fits),
        "scaling_law": law_table(fits, law, read_resamples(build), forecasts, heldout),
        "evals": pl.read_parquet(build.input("evals").read("evals.parquet")),
        "downstream": pl.read_parquet(build.input("downstream").read("downstream.parquet")),
        "loss_curves": _loss_curves(build),
    }
    figures = []
    for name, table in tables.items():
        with build.writer.open(f"{name}.parquet") as file:
            table.write_parquet(file)
        figures.append(
            {
                "config": name,
                "file": f"{name}.parquet",
                "description": _DESCRIPTIONS[name],
                "rows": len(table),
                "columns": describe(table),
            }
        )
    build.writer.write_json("figures.json", figures)
    return Outcome({"configs": len(tables), "rows": {name: len(table) for name, table in tables.items()}})


def _loss_curves(build: Build) -> pl.DataFrame:
    suite, heldout = build.spec.inputs["suite"], heldout_runs(build.spec.inputs["heldout"], build.store)
    note_inputs(build, heldout)
    trained = {
        "isoflop": {cell: spec for cell, spec in suite.inputs.items() if cell != "recipe"},
        "held-out": heldout,
    }
    runs = [(kind, name, spec) for kind, specs in trained.items() for name, spec in specs.items()]
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return pl.concat(pool.map(lambda run: _loss_curve(build, *run), runs))


def _loss_curve(build: Build, kind: str, name: str, spec: ArtifactSpec) -> pl.DataFrame:
    artifact = build.store.artifact(spec)
    plan = spec.config["plan"]
    curve = thinned(pl.read_parquet(artifact.read("metrics.parquet")), _POINTS_OF_A_LOSS_CURVE)
    return curve.select(
        kind=pl.lit(kind),
        name=pl.lit(name),
        flops=pl.lit(plan["flops"], pl.Float64),
        hidden_dim=pl.lit(plan["hidden_dim"], pl.Int64),
        step="step",
        tokens=(pl.col("step") + 1) * plan["batch_size"] * plan["seq_len"],
        train_loss="loss",
        learning_rate="learning_rate",
        wandb_url=pl.lit(artifact.record.summary.get("wandb_url"), pl.String),
    )
