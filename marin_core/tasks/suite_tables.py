"""What the tasks of the suite read of each other's artifacts."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from marin_core.build import Build
from marin_core.recipes import AdamHParams, TrainPlan
from marin_core.scaling import Bootstrap, Curve, IsoFlop, fit_isoflop
from marin_core.store import ArtifactRecord, ArtifactSpec


def note_inputs(build: Build, specs: Mapping[str, ArtifactSpec]) -> None:
    """Note what a task reads that only a committed forecast names: held-out runs, or what is made of them. To be called
    before they are read."""
    for role, spec in specs.items():
        build.writer.reads(role, spec)


def run_row(cell: str, record: ArtifactRecord, plan: TrainPlan) -> dict[str, Any]:
    """One run as a row: its plan's numbers and its results, no timings, so that equal runs give equal tables. `cell` is
    what whoever asks calls it: it may have been trained first under another key."""
    summary = record.summary
    evals = {k.removeprefix("eval/").replace("/", "_"): v for k, v in sorted(summary["evals"].items())}
    return {
        "cell": cell,
        "flops": plan.flops,
        "hidden_dim": plan.hidden_dim,
        "num_layers": plan.num_layers,
        "num_heads": plan.num_heads,
        "batch_size": plan.batch_size,
        "seq_len": plan.seq_len,
        "steps": plan.steps,
        "tokens": plan.tokens,
        "params": plan.params,
        "seed": plan.seed,
        "learning_rate": plan.optimizer.learning_rate,
        "adam_lr": plan.optimizer.adam_lr if isinstance(plan.optimizer, AdamHParams) else None,
        "beta2": plan.optimizer.beta2,
        "status": summary["status"],
        "train_loss": summary["train_loss"],
        "eval_loss": summary["eval_loss"],
        **{f"eval_{name}": value for name, value in evals.items() if name not in ("macro_loss", "loss")},
        "run": record.fingerprint,
    }


def read_runs(build: Build) -> pl.DataFrame:
    """The suite's runs, one a row; `excluded` is null where a run takes part in the fits."""
    return pl.read_parquet(build.input("suite").read("runs.parquet"))


def curves_of(runs: pl.DataFrame) -> list[Curve]:
    """By budget, ascending, the runs that take part in the fits."""
    finished = runs.filter(pl.col("excluded").is_null()).sort("flops", "tokens")
    by_budget = {c: finished.filter(pl.col("flops") == c) for c in sorted(runs["flops"].unique())}
    return [
        Curve(c, list(t["tokens"]), list(t["params"]), list(t["eval_loss"]), list(t["cell"]))
        for c, t in by_budget.items()
    ]


def fit_curve(curve: Curve) -> IsoFlop:
    return fit_isoflop(curve.flops, curve.tokens, curve.params, curve.losses)


def read_fits(build: Build) -> list[IsoFlop]:
    return [IsoFlop.from_json(fit) for fit in build.input("isoflop").read_json("isoflop.json")]


def read_constants(build: Build) -> dict[str, Any]:
    """The laws and all that belongs to them."""
    return build.input("scaling_law").read_json("scaling_law.json")


def read_resamples(build: Build) -> Bootstrap:
    return Bootstrap.from_table(pl.read_parquet(build.input("scaling_law").read("resampled_laws.parquet")))
