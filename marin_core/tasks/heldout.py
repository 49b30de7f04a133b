"""Tasks of the held-out runs: what is forecast, what happened, and the verdict on it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from marin_core.build import Build, Outcome
from marin_core.graph import heldout_runs
from marin_core.recipes import Candidate, ScalingRecipe, TokenLaw, TrainPlan, format_budget
from marin_core.scaling import (
    Interval,
    LossLaw,
    forecast_sentence,
    registration_sentence,
    seed_spread_percent,
    verdict_sentence,
)
from marin_core.store import ArtifactRecord
from marin_core.store.store import utc_now
from marin_core.tasks.suite_tables import note_inputs, read_constants, read_resamples, run_row


def forecast(build: Build) -> Outcome:
    """`forecast.json`: the loss of the recommended model at each held-out budget, with interval and time stamp."""
    recipe = ScalingRecipe.from_json(build.spec.config["recipe"])
    constants, resampled = read_constants(build), read_resamples(build)
    law, token_law = LossLaw.from_json(constants["loss_law"]), TokenLaw(**constants["token_law"])
    registered = utc_now()
    forecasts = []
    for flops in sorted(build.spec.config["heldout_budgets"]):
        chosen = recipe.optimal(flops, token_law)
        forecasts.append(
            {
                "flops": flops,
                "predicted_loss": law.loss(flops),
                "interval": dataclasses.asdict(resampled.loss(flops)),
                "run": {"cell": chosen.key, **chosen.to_json()},
            }
        )
        build.log(forecast_sentence(forecasts[-1]))
    build.writer.write_json("forecast.json", {"registered": registered, "forecasts": forecasts})
    shown = {
        format_budget(each["flops"]): {
            **{name: value for name, value in each.items() if name != "run"},
            "cell": each["run"]["cell"],
        }
        for each in forecasts
    }
    return Outcome({"registered": registered, **_one_or_all("forecasts", shown)})


def collect_heldout(build: Build) -> Outcome:
    """`heldout.json`: one row a run, as the suite's, with its partition, when it ran, and its page."""
    runs = heldout_runs(build.spec, build.store)
    note_inputs(build, runs)
    rows = [_heldout_row(key, build.store.artifact(spec).record) for key, spec in runs.items()]
    build.writer.write_json("heldout.json", {"runs": rows})
    shown = {row["partition"]: {name: value for name, value in row.items() if name != "partition"} for row in rows}
    if len(rows) > 1:
        few = ("cell", "seed", "status", "eval_loss", "wandb_url")
        shown = {key: {name: row[name] for name in few} for key, row in shown.items()}
    return Outcome(_one_or_all("runs", shown))


def judge(build: Build) -> Outcome:
    """`verdict.json`: each held-out run against the forecast of its budget, and whether that was registered before the
    run began. A forecast made again, for instance for one more budget, is later than the runs that were there."""
    promised = build.input("forecast").read_json("forecast.json")
    runs = build.input("heldout").read_json("heldout.json")["runs"]
    forecasts = {each["flops"]: each for each in promised["forecasts"]}
    registered = promised["registered"]
    verdicts = [_verdict(registered, forecasts[run["flops"]], run) for run in runs]
    first = all(verdict["registered_before_run"] for verdict in verdicts)
    build.writer.write_json("verdict.json", {"registered_before_runs": first, "verdicts": verdicts})
    for verdict in verdicts:
        build.log(verdict_sentence(verdict))
    build.log(registration_sentence(registered, verdicts))
    spread = {format_budget(c): percent for c, percent in seed_spread_percent(verdicts).items()}
    shown = {verdict["partition"]: verdict for verdict in verdicts}
    if len(verdicts) > 1:
        few = (
            "predicted_loss",
            "actual_loss",
            "error_percent",
            "inside_interval",
            "run_status",
            "registered_before_run",
        )
        shown = {key: {name: verdict[name] for name in few} for key, verdict in shown.items()}
    seeds = {"seed_spread_percent": spread} if spread else {}
    return Outcome({"registered_before_runs": first, **_one_or_all("verdicts", shown), **seeds})


def _heldout_row(partition: str, record: ArtifactRecord) -> dict[str, Any]:
    plan = TrainPlan.from_json(dict(record.payload["config"]["plan"]))
    return {
        **run_row(Candidate.key_of(plan.flops, plan.hidden_dim), record, plan),
        "partition": partition,
        "started": record.provenance.started,
        "ended": record.provenance.ended,
        "wandb_url": record.summary.get("wandb_url"),
    }


def _verdict(registered: str, promised: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    actual, predicted = run["eval_loss"], promised["predicted_loss"]
    return {
        "flops": run["flops"],
        "seed": run["seed"],
        "cell": run["cell"],
        "partition": run["partition"],
        "predicted_loss": predicted,
        "interval": promised["interval"],
        "actual_loss": actual,
        "error_percent": None if actual is None else 100 * (actual - predicted) / predicted,
        "inside_interval": None if actual is None else actual in Interval(**promised["interval"]),
        "run_status": run["status"],
        "registered_before_run": registered < run["started"],
    }


def _one_or_all(name: str, shown: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """For a record's summary: the fields of a single entry, of several the entries by their names."""
    return dict(next(iter(shown.values()))) if len(shown) == 1 else {name: dict(shown)}
