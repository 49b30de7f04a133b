"""The tasks of experiments: to register one, to say what came of it, and to tell it as a report."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.graph.experiments import ARM_SEPARATOR, REGISTRATION_ROLE, RESULT_ROLE
from marin_core.recipes import Candidate
from marin_core.records.comparison import compare, differing_settings
from marin_core.records.experiment import DifferenceForecast, forecast_of
from marin_core.records.retrospective import Retrospective, render_retrospective
from marin_core.store import Artifact, ArtifactRecord
from marin_core.store.spec import canonical_json, digest

REGISTRATION = "experiment.json"
RESULT = "result.json"
RUNS = "runs.parquet"
CURVES = "curves.parquet"
REPORT = "retrospective.md"
_KINDS = ("png", "svg")
# Where all are null, the type has to be said.
_TEXTS: dict[str, type[pl.DataType]] = {"wandb_url": pl.String, "excluded": pl.String}


def register_experiment(build: Build) -> Outcome:
    """`experiment.json`, as it is declared; when it is committed is when it was registered."""
    declared = dict(build.spec.config)
    build.writer.write_json(REGISTRATION, declared)
    shown = ("title", "hypothesis", "metric", "where", "owner", "issue", "tags")
    forecast = forecast_of(declared["forecast"]).sentence()
    runs = sum(len(specs) for specs in declared["runs"].values())
    return Outcome({**{key: declared[key] for key in shown}, "forecast": forecast, "runs": runs})


def compare_arms(build: Build) -> Outcome:
    """`result.json`: the difference of the arms, pair by pair, whether it is the one forecast, and in which settings
    the arms differ. `runs.parquet` has a row a run, `curves.parquet` one a step; and there are figures of both."""
    from marin_core.tasks.experiment_figures import named_figures

    registration = build.input(REGISTRATION_ROLE)
    forecast = forecast_of(registration.read_json(REGISTRATION)["forecast"])
    assert isinstance(forecast, DifferenceForecast)
    runs = {role: build.input(role) for role in build.spec.inputs if role != REGISTRATION_ROLE}
    rows = [_arm_row(role, run.record) for role, run in runs.items()]
    comparison = compare(forecast, rows, registered=registration.record.provenance.ended)
    curves = pl.concat([_curve(row, run) for row, run in zip(rows, runs.values(), strict=True)])
    first_pair = [(row["arm"], run) for row, run in zip(rows, runs.values(), strict=True) if row["pair"] == 0]
    plans = {arm: run.record.payload["config"]["plan"] for arm, run in first_pair}
    result = {**comparison.to_json(), "settings": differing_settings(plans)}
    build.writer.write_json(RESULT, result)
    _write_table(build, RUNS, pl.DataFrame(rows, infer_schema_length=None, schema_overrides=_TEXTS))
    _write_table(build, CURVES, curves)
    figures = named_figures(comparison, curves)
    _write_figures(build, figures)
    return Outcome({**comparison.summary(), "figures": sorted(figures)}, content=_content(result, rows))


def report_suite(build: Build) -> Outcome:
    """What a scaling suite came to, for an experiment that is about the suite itself: `result.json` with the verdicts
    of its forecast, `runs.parquet`, and the suite's figures."""
    rows = list(_suite_rows(build))
    chosen = set(build.spec.inputs)
    verdicts = build.input("delphi/verdict").read_json("verdict.json")["verdicts"] if "delphi/verdict" in chosen else []
    late = [verdict["partition"] for verdict in verdicts if not verdict["registered_before_run"]]
    inside = [verdict["partition"] for verdict in verdicts if verdict["inside_interval"]]
    diverged = [row["partition"] for row in rows if row["status"] == "diverged"]
    result = {"verdicts": verdicts, "diverged": diverged, "settings": {}, "pairs": []}
    build.writer.write_json(RESULT, result)
    _write_table(build, RUNS, pl.DataFrame(rows, infer_schema_length=None, schema_overrides=_TEXTS))
    figures = _copy_figures(build, build.input("delphi/figures")) if "delphi/figures" in chosen else []
    numbers = {
        "ladder_runs": sum(row["arm"] == "ladder" for row in rows),
        "held_out_runs": len(verdicts),
        "inside_interval": len(inside),
        "forecast_held": len(inside) == len(verdicts),
        "registered_before_runs": not late,
        "diverged": diverged,
    }
    return Outcome({**numbers, "figures": figures}, content=_content(result, rows))


def write_retrospective(build: Build) -> Outcome:
    """`retrospective.md`: what is known, and what people wrote about it; with the figures it shows."""
    config, declared = build.spec.config, build.input(REGISTRATION_ROLE)
    result = build.input(RESULT_ROLE) if RESULT_ROLE in build.spec.inputs else None
    text = render_retrospective(
        Retrospective(
            declared=declared.read_json(REGISTRATION),
            registered=declared.record.provenance.ended,
            ruling=config["ruling"],
            prose=config["prose"],
            failed=config.get("failed", ()),
            record=result.record if result else None,
            result=result.read_json(RESULT) if result else None,
            runs=pl.read_parquet(result.read(RUNS)).to_dicts() if result else (),
        )
    )
    with build.writer.open(REPORT) as file:
        file.write(text.encode())
    figures = _copy_figures(build, result) if result else []
    ruling = config["ruling"]
    known = {"verdict": ruling["verdict"], "conclusion": ruling["conclusion"], "lines": text.count("\n")}
    return Outcome({**known, "failed_attempts": len(config.get("failed", ())), "figures": figures})


def _arm_row(role: str, record: ArtifactRecord) -> dict[str, Any]:
    """A training run, in its place of its arm."""
    arm, _, pair = role.partition(ARM_SEPARATOR)
    plan, summary, made = record.payload["config"]["plan"], record.summary, record.provenance
    return {
        "arm": arm,
        "pair": int(pair),
        "cell": Candidate.key_of(plan["flops"], plan["hidden_dim"]),
        "partition": record.partition,
        "fingerprint": record.fingerprint,
        "flops": plan["flops"],
        "hidden_dim": plan["hidden_dim"],
        "status": summary["status"],
        "loss": summary["eval_loss"],
        "train_loss": summary["train_loss"],
        "steps": summary["steps"],
        "planned_steps": plan["steps"],
        "train_seconds": summary["train_seconds"],
        "began": made.started,
        "ended": made.ended,
        "commit": made.commit,
        "dirty": made.dirty,
        "host": made.host,
        "wandb_url": summary.get("wandb_url"),
        "excluded": None,
    }


def _suite_rows(build: Build) -> Iterator[dict[str, Any]]:
    """The ladder's runs and the held-out ones, as far as the experiment is about them, in the columns both have."""
    same = ("flops", "hidden_dim", "status", "train_loss", "steps", "wandb_url")
    if "delphi/suite" in build.spec.inputs:
        for row in pl.read_parquet(build.input("delphi/suite").read(RUNS)).iter_rows(named=True):
            of_ladder = {"arm": "ladder", "cell": row["cell"], "partition": row["cell"], "excluded": row["excluded"]}
            yield {
                **of_ladder,
                "fingerprint": row["run"],
                "loss": row["eval_loss"],
                **{name: row[name] for name in same},
            }
    if "delphi/heldout" in build.spec.inputs:
        for row in build.input("delphi/heldout").read_json("heldout.json")["runs"]:
            held_out = {"arm": "held-out", "cell": row["cell"], "partition": row["partition"], "excluded": None}
            yield {
                **held_out,
                "fingerprint": row["run"],
                "loss": row["eval_loss"],
                **{name: row[name] for name in same},
            }


def _curve(row: Mapping[str, Any], run: Artifact) -> pl.DataFrame:
    plan = run.record.payload["config"]["plan"]
    of_run = [pl.lit(row[name]).alias(name) for name in ("arm", "pair", "cell", "fingerprint", "status")]
    steps = pl.read_parquet(run.read("metrics.parquet")).select("step", "loss", "learning_rate")
    tokens = ((pl.col("step") + 1) * plan["batch_size"] * plan["seq_len"]).alias("tokens")
    return steps.select(*of_run, "step", tokens, "loss", "learning_rate")


def _write_table(build: Build, name: str, table: pl.DataFrame) -> None:
    file = io.BytesIO()
    table.write_parquet(file)
    with build.writer.open(name) as written:
        written.write(file.getvalue())


def _write_figures(build: Build, figures: Mapping[str, Any]) -> None:
    from marin_core.scaling.figures import encode

    for name, figure in figures.items():
        for kind in _KINDS:
            with build.writer.open(f"{name}.{kind}") as file:
                file.write(encode(figure, kind))


def _copy_figures(build: Build, artifact: Artifact) -> list[str]:
    """The figures of another artifact, as this one's: what shows them must not need the other."""
    names = list(artifact.record.summary.get("figures", []))
    for name in names:
        for kind in _KINDS:
            with build.writer.open(f"{name}.{kind}") as file:
                file.write(artifact.read(f"{name}.{kind}"))
    return names


def _content(result: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    """Equal runs are equal wherever and whenever they ran."""
    circumstances = {"began", "ended", "commit", "dirty", "host", "train_seconds", "wandb_url"}
    runs = [{name: value for name, value in row.items() if name not in circumstances} for row in rows]
    return digest(canonical_json([dict(result), runs]))
