"""The report of a suite: Markdown made from its artifacts, and from nothing else."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.markdown import template
from marin_core.recipes import format_budget
from marin_core.scaling.sensitivity import LeftOut, Refit
from marin_core.scaling.sentences import (
    forecast_sentence,
    law_sentence,
    registration_sentence,
    seed_spread_percent,
    token_law_sentence,
    verdict_sentence,
)

type Json = Mapping[str, Any]

_MISSING = "—"
_UNITS = {1e12: "T", 1e9: "B", 1e6: "M", 1e3: "K"}


@dataclass(frozen=True)
class Table:
    """A Markdown table; cells are text, numbers that are formatted already, or None."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Image:
    """A figure beside the report."""

    title: str
    file: str


def render_report(
    *,
    constants: Json,
    forecast: Json,
    heldout: Json,
    verdict: Json,
    downstream: Json,
    evals: Sequence[Json],
    images: Sequence[Image] = (),
) -> str:
    """The arguments are the JSON of the artifacts of these names (`constants` is `scaling_law.json`); `evals` are the
    rows of the suite's evaluations that are about held-out runs."""
    verdicts, forecasts = verdict["verdicts"], forecast["forecasts"]
    spread = seed_spread_percent(verdicts)
    text = template(Path(__file__).with_name("report.md.jinja"), _MISSING).render(
        token_law=token_law_sentence(constants),
        law=law_sentence(constants),
        sentences=[*map(forecast_sentence, forecasts), *map(verdict_sentence, verdicts)],
        registration=registration_sentence(forecast["registered"], verdicts),
        seed_spread={format_budget(c): percent for c, percent in spread.items()},
        images=images,
        outcome=_outcome(verdicts, heldout["runs"]),
        minima=_minima(constants["minima"]),
        excluded=Table(["run", "reason"], [[row["cell"], row["excluded"]] for row in constants["excluded_runs"]]),
        outliers=Table(
            ["run", "off by (nats per token)", "usual"],
            [[row["name"], f"{row['residual']:+.4f}", f"± {row['limit']:.4f}"] for row in constants["outliers"]],
        ),
        leave_one_out=_leave_one_out(constants["leave_one_out"], forecasts),
        sensitivity=_sensitivity(constants["sensitivity"], forecasts, _mean_losses(verdicts)),
        tasks=[_task(task) for task in downstream["evaluations"]],
        without_forecast=downstream["without_forecast"],
        evaluations=_evaluations(evals),
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _outcome(verdicts: Sequence[Json], runs: Sequence[Json]) -> Table:
    headers = [
        "run",
        "model",
        "parameters",
        "tokens",
        "predicted",
        "95 % interval",
        "happened",
        "error",
        "inside",
        "forecast first",
        "page",
    ]
    by_partition = {run["partition"]: run for run in runs}
    rows = []
    for verdict in verdicts:
        run = by_partition[verdict["partition"]]
        happened = verdict["run_status"] if verdict["actual_loss"] is None else _loss(verdict["actual_loss"])
        rows.append(
            [
                verdict["partition"],
                verdict["cell"],
                _count(run["params"]),
                _count(run["tokens"]),
                _loss(verdict["predicted_loss"]),
                _interval(verdict["interval"], ".4f"),
                happened,
                _percent(verdict["error_percent"]),
                _yes(verdict["inside_interval"]),
                _yes(verdict["registered_before_run"]),
                f"[W&B]({run['wandb_url']})" if run.get("wandb_url") else None,
            ]
        )
    return Table(headers, rows)


def _minima(minima: Sequence[Json]) -> Table:
    headers = ["budget (FLOPs)", "runs", "tokens", "parameters", "loss", "left out because"]
    return Table(
        headers,
        [
            [
                format_budget(row["flops"]),
                row["runs"],
                _count(row["tokens"]),
                _count(row["params"]),
                _loss(row["loss"]),
                row["problem"],
            ]
            for row in minima
        ],
    )


def _leave_one_out(rows: Sequence[Json], forecasts: Sequence[Json]) -> Table:
    budgets = [each["flops"] for each in forecasts]
    headers = ["left out", "E", "α", "predicted", "happened", "error", *map(format_budget, budgets), "no fit because"]
    table = []
    for row in map(LeftOut.from_json, rows):
        predicted, happened, error = _loss(row.predicted), _loss(row.loss), _percent(row.error_percent)
        refit = _refit(row.refit, budgets)
        table.append([format_budget(row.flops), *refit[:2], predicted, happened, error, *refit[2:], row.refit.problem])
    return Table(headers, table)


def _sensitivity(rows: Sequence[Json], forecasts: Sequence[Json], actual: Mapping[float, float]) -> Table:
    budgets = [each["flops"] for each in forecasts]
    headers = ["fit", "E", "α", *map(format_budget, budgets), "no fit because"]
    refits = map(Refit.from_json, rows)
    return Table(headers, [[refit.what, *_refit(refit, budgets, actual), refit.problem] for refit in refits])


def _refit(refit: Refit, budgets: Sequence[float], actual: Mapping[float, float] | None = None) -> list[str | None]:
    """Offset, exponent, and the loss at each budget, with how far what happened is from it."""
    law = refit.law
    if law is None:
        return [None] * (2 + len(budgets))
    forecasts = []
    for flops in budgets:
        happened = (actual or {}).get(flops)
        off = "" if happened is None else f" ({_percent(100 * (happened - law.loss(flops)) / law.loss(flops))})"
        forecasts.append(f"{law.loss(flops):.4f}{off}")
    return [f"{law.irreducible:.3f}", f"{law.exponent:.4f}", *forecasts]


def _mean_losses(verdicts: Sequence[Json]) -> dict[float, float]:
    losses: dict[float, list[float]] = {}
    for verdict in verdicts:
        if verdict["actual_loss"] is not None:
            losses.setdefault(verdict["flops"], []).append(verdict["actual_loss"])
    return {flops: sum(found) / len(found) for flops, found in losses.items()}


def _task(task: Json) -> dict[str, Any]:
    metrics = task["metrics"]
    unit = f" ({metrics['soft_unit']})" if metrics["soft_unit"] else ""
    return {
        "name": task["evaluation"],
        "about": f"Soft metric `{metrics['soft']}`{unit} of {len(task['compute_optimal'])} compute-optimal models, "
        f"hard metric `{metrics['hard']}` of {task['models']} models, chance {metrics['chance']:.3f}.",
        "problems": task["problems"],
        "forecasts": Table(
            ["budget (FLOPs)", "soft metric", "95 % interval", "score", "95 % interval"],
            [
                [
                    format_budget(row["flops"]),
                    _loss(row["soft"]),
                    _interval(row["soft_interval"], ".4f"),
                    _score(row["hard"]),
                    _interval(row["hard_interval"], ".3f"),
                ]
                for row in task["forecasts"]
            ],
        ),
        "comparisons": Table(
            ["run", "soft predicted", "happened", "inside", "score predicted", "happened", "inside", "from its soft"],
            [
                [
                    row["partition"],
                    _loss(row["predicted_soft"]),
                    _loss(row["actual_soft"]),
                    _yes(row["soft_inside_interval"]),
                    _score(row["predicted_hard"]),
                    _score(row["actual_hard"]),
                    _yes(row["hard_inside_interval"]),
                    _score(row["hard_from_actual_soft"]),
                ]
                for row in task["comparisons"]
            ],
        ),
    }


def _evaluations(evals: Sequence[Json]) -> Table:
    headers = ["run", "evaluation", "metric", "value", "standard error", "unit", "examples", "contaminated documents"]
    rows = []
    for row in evals:
        value = row["status"] if row["value"] is None else f"{row['value']:.4f}"
        error = None if row["stderr"] is None else f"± {row['stderr']:.4f}"
        counts = [row["unit"], row["examples"], row["contaminated_documents"]]
        rows.append([row["partition"], row["evaluation"], row["metric"], value, error, *counts])
    return Table(headers, rows)


def _loss(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _score(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:+.2f} %"


def _count(value: float | None) -> str | None:
    """Three digits and a unit, as such numbers are quoted: 447M."""
    if value is None:
        return None
    unit = next((unit for unit in _UNITS if value >= unit), 1.0)
    return f"{value / unit:.3g}{_UNITS.get(unit, '')}"


def _interval(interval: Json | None, form: str) -> str | None:
    return None if interval is None else f"{interval['low']:{form}} to {interval['high']:{form}}"


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
