"""The tasks of experiments: to register one, to say what came of it, and to tell it as a report."""

import io
from typing import Any

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.graph.experiments import ARM_SEPARATOR, REGISTRATION_ROLE
from marin_core.records.comparison import compare
from marin_core.store import ArtifactRecord

REGISTRATION = "experiment.json"
RESULT = "result.json"
RUNS = "runs.parquet"


def register_experiment(build: Build) -> Outcome:
    """`experiment.json`, as it is declared; when it is committed is when it was registered."""
    declared = dict(build.spec.config)
    build.writer.write_json(REGISTRATION, declared)
    shown = ("title", "hypothesis", "metric", "where", "owner")
    return Outcome({key: declared[key] for key in shown})


def compare_arms(build: Build) -> Outcome:
    """`result.json` and `runs.parquet`: the runs of every arm, their difference, and whether it is the one forecast."""
    registration = build.input(REGISTRATION_ROLE)
    declared = registration.read_json(REGISTRATION)
    rows = [_row(role, build.input(role).record) for role in build.spec.inputs if role != REGISTRATION_ROLE]
    result = compare(declared["forecast"], rows, registered=registration.record.provenance.ended)
    build.writer.write_json(RESULT, result.to_json())
    table = io.BytesIO()
    pl.DataFrame(rows).write_parquet(table)
    with build.writer.open(RUNS) as file:
        file.write(table.getvalue())
    return Outcome(result.summary())


def report_suite(build: Build) -> Outcome:
    """`result.json`: what a scaling suite came to, for an experiment that is about the suite itself."""
    verdicts = build.input("delphi/verdict").read_json("verdict.json")["verdicts"]
    late = [verdict["partition"] for verdict in verdicts if not verdict["registered_before_run"]]
    inside = [verdict["partition"] for verdict in verdicts if verdict["inside_interval"]]
    build.writer.write_json(RESULT, {"verdicts": verdicts})
    return Outcome(
        {
            "held_out_runs": len(verdicts),
            "inside_interval": len(inside),
            "forecast_held": len(inside) == len(verdicts),
            "registered_before_runs": not late,
        }
    )


def write_retrospective(build: Build) -> Outcome:
    """`retrospective.md`: what is known, and what people wrote about it."""
    from marin_core.records.retrospective import render_retrospective

    declared = build.input(REGISTRATION_ROLE)
    result = build.input("result") if "result" in build.spec.inputs else None
    text = render_retrospective(
        declared=declared.read_json(REGISTRATION),
        registered=declared.record.provenance.ended,
        ruling=build.spec.config["ruling"],
        prose=build.spec.config["prose"],
        result=result.read_json(RESULT) if result else None,
        summary=dict(result.record.summary) if result else {},
    )
    with build.writer.open("retrospective.md") as file:
        file.write(text.encode())
    ruling = build.spec.config["ruling"]
    return Outcome({"verdict": ruling["verdict"], "conclusion": ruling["conclusion"], "lines": text.count("\n")})


def _row(role: str, record: ArtifactRecord) -> dict[str, Any]:
    """A training run, in its place of its arm."""
    arm, _, pair = role.partition(ARM_SEPARATOR)
    plan, summary = record.payload["config"]["plan"], record.summary
    return {
        "arm": arm,
        "pair": int(pair),
        "partition": record.partition,
        "fingerprint": record.fingerprint,
        "flops": plan["flops"],
        "hidden_dim": plan["hidden_dim"],
        "status": summary["status"],
        "loss": summary["eval_loss"],
        "steps": summary["steps"],
        "began": record.provenance.started,
        "wandb_url": summary.get("wandb_url"),
    }
