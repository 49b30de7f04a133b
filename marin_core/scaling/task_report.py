"""A task's forecast beside what was measured, in the metrics' own signs: numbers, a table to plot, and sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from marin_core.recipes import format_budget
from marin_core.scaling.bootstrap import Interval
from marin_core.scaling.downstream import Scored, TaskForecast
from marin_core.scaling.sentences import task_sentence

_POINTS = 40
_TWO_SIDED_95 = 1.96
SCHEMA = pl.Schema(
    {
        "evaluation": pl.String,
        "kind": pl.String,
        "name": pl.String,
        "flops": pl.Float64,
        "soft": pl.Float64,
        "soft_low": pl.Float64,
        "soft_high": pl.Float64,
        "hard": pl.Float64,
        "hard_low": pl.Float64,
        "hard_high": pl.Float64,
        "wandb_url": pl.String,
    }
)


@dataclass(frozen=True)
class TaskReport:
    """`sign` turns a cost into the soft metric as it is reported. `optimal` and `models` are what the two steps were
    fitted on, `heldout` what they are compared with; `pages` has the runs' tracker pages by name."""

    evaluation: str
    metrics: Mapping[str, Any]
    sign: int
    forecast: TaskForecast
    budgets: tuple[float, ...]
    optimal: tuple[Scored, ...]
    models: tuple[Scored, ...]
    heldout: tuple[Scored, ...]
    pages: Mapping[str, str | None]

    def to_json(self) -> dict[str, Any]:
        """An entry of `downstream.json`. The law and the sigmoid are of costs: `sign` times the soft metric."""
        law, sigmoid = self.forecast.law, self.forecast.sigmoid
        return {
            "evaluation": self.evaluation,
            "metrics": dict(self.metrics),
            "status": self.forecast.status,
            "problems": list(self.forecast.problems),
            "compute_optimal": [model.name for model in self.optimal],
            "models": len(self.models),
            "soft_law": law.to_json() if law else None,
            "sigmoid": {"floor": sigmoid.floor, "midpoint": sigmoid.midpoint, "width": sigmoid.width}
            if sigmoid
            else None,
            "forecasts": [self._forecast(flops) for flops in self.budgets] if law else [],
            "comparisons": [self._comparison(model) for model in self.heldout] if law else [],
        }

    def summary(self) -> dict[str, Any]:
        """For the record: the status, and by budget the score that is forecast."""
        shown = {format_budget(flops): self.forecast.hard(flops) for flops in self.budgets}
        return {"status": self.forecast.status, "problems": list(self.forecast.problems), "forecast": shown}

    def lines(self) -> Iterator[str]:
        """What a log says."""
        for problem in self.forecast.problems:
            yield f"{self.evaluation}: {problem}"
        if self.forecast.law:
            yield from (task_sentence(self.evaluation, self._forecast(flops)) for flops in self.budgets)

    def _forecast(self, flops: float) -> dict[str, Any]:
        cost, hard = self.forecast.cost_interval(flops), self.forecast.hard_interval(flops)
        return {
            "flops": flops,
            "soft": self._soft(self.forecast.cost(flops)),
            "soft_interval": self._soft_interval(cost),
            "hard": self.forecast.hard(flops),
            "hard_interval": _json(hard),
        }

    def _comparison(self, model: Scored) -> dict[str, Any]:
        flops = float(model.flops or 0)
        cost, hard = self.forecast.cost(flops), self.forecast.hard(flops)
        cost_interval, hard_interval = self.forecast.cost_interval(flops), self.forecast.hard_interval(flops)
        sigmoid = self.forecast.sigmoid
        return {
            "partition": model.name,
            "flops": flops,
            "predicted_soft": self._soft(cost),
            "actual_soft": self._soft(model.cost),
            "soft_error_percent": None if cost is None else 100 * (model.cost - cost) / cost,
            "soft_inside_interval": None if cost_interval is None else model.cost in cost_interval,
            "predicted_hard": hard,
            "hard_from_actual_soft": sigmoid.hard(model.cost) if sigmoid else None,
            "actual_hard": model.hard,
            "hard_error": None if hard is None else model.hard - hard,
            "hard_inside_interval": None if hard_interval is None else model.hard in hard_interval,
        }

    def _soft(self, cost: float | None) -> float | None:
        return None if cost is None else self.sign * cost

    def _soft_interval(self, interval: Interval | None) -> dict[str, float] | None:
        if interval is None:
            return None
        ends = sorted((self.sign * interval.low, self.sign * interval.high))
        return {"low": ends[0], "high": ends[1]}

    def table(self) -> pl.DataFrame:
        """Rows of `SCHEMA`. `kind` is model, compute-optimal, external or held-out (measured); law (over compute),
        sigmoid (over the soft metric) or forecast. Low and high are 95 % intervals."""
        optimal = {model.name for model in self.optimal}
        rows = [
            self._measured(
                model, "compute-optimal" if model.name in optimal else "model" if model.flops else "external"
            )
            for model in self.models
        ]
        rows += [self._measured(model, "held-out") for model in self.heldout]
        law, sigmoid = self.forecast.law, self.forecast.sigmoid
        if law:
            known = [float(model.flops or 0) for model in self.optimal]
            grid = np.geomspace(min(known), 2 * max(*known, *self.budgets), _POINTS)
            rows += [self._row(self._forecast(float(flops)), "law") for flops in grid]
            rows += [self._row(self._forecast(flops), "forecast") for flops in self.budgets]
        if sigmoid:
            costs = [m.cost for m in (*self.models, *self.heldout)]
            costs += [c for flops in self.budgets if (c := self.forecast.cost(flops)) is not None]
            for cost in np.linspace(min(costs), max(costs), _POINTS):
                hard = _json(self.forecast.hard_interval_at(float(cost)))
                point = {"soft": self.sign * float(cost), "hard": sigmoid.hard(float(cost)), "hard_interval": hard}
                rows.append(self._row(point, "sigmoid"))
        return pl.DataFrame(rows, schema=SCHEMA)

    @staticmethod
    def tables(reports: Sequence["TaskReport"]) -> pl.DataFrame:
        """The tables of several tasks, one after the other."""
        return pl.concat([pl.DataFrame(schema=SCHEMA), *(report.table() for report in reports)])

    def _measured(self, model: Scored, kind: str) -> dict[str, Any]:
        soft = self.sign * model.cost
        noise = _TWO_SIDED_95 * model.cost_stderr if model.cost_stderr is not None else None
        share = _TWO_SIDED_95 * (model.hard * (1 - model.hard) / model.examples) ** 0.5 if model.examples else None
        point = {
            "flops": model.flops,
            "soft": soft,
            "soft_interval": None if noise is None else {"low": soft - noise, "high": soft + noise},
            "hard": model.hard,
            "hard_interval": None
            if share is None
            else {"low": max(0.0, model.hard - share), "high": min(1.0, model.hard + share)},
        }
        return {**self._row(point, kind), "name": model.name, "wandb_url": self.pages.get(model.name)}

    def _row(self, point: Mapping[str, Any], kind: str) -> dict[str, Any]:
        soft, hard = point.get("soft_interval") or {}, point.get("hard_interval") or {}
        return {
            "evaluation": self.evaluation,
            "kind": kind,
            "name": None,
            "flops": point.get("flops"),
            "soft": point["soft"],
            "soft_low": soft.get("low"),
            "soft_high": soft.get("high"),
            "hard": point["hard"],
            "hard_low": hard.get("low"),
            "hard_high": hard.get("high"),
            "wandb_url": None,
        }


def _json(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"low": interval.low, "high": interval.high}
