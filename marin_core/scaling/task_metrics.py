"""Which two metrics of an evaluation a downstream forecast is about: the soft one, which changes smoothly with the
model, and the hard one, which people quote."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

# Units of losses and log-probabilities, which are soft, and of scores.
_SOFT_UNITS = ("nats", "bits per byte")
_HARD_UNIT = "fraction"
_CHANCE = "chance"


@dataclass(frozen=True)
class TaskMetrics:
    """`sign` makes a cost of the soft metric: 1 where less is better, -1 where more is. `chance` is the hard metric of
    a model that guesses, a share of 1."""

    soft: str
    hard: str
    soft_unit: str | None
    sign: int
    chance: float

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def scores(self, evals: pl.DataFrame) -> pl.DataFrame:
        """One row for each run that has both metrics: its columns, soft, soft_stderr, hard, hard_stderr."""
        about = [
            name for name in evals.columns if name not in ("metric", "value", "stderr", "unit", "higher_is_better")
        ]
        soft, hard = (
            evals.filter(pl.col("metric") == metric).rename({"value": name, "stderr": f"{name}_stderr"})
            for metric, name in ((self.soft, "soft"), (self.hard, "hard"))
        )
        return soft.select(*about, "soft", "soft_stderr").join(
            hard.select("partition", "hard", "hard_stderr"), on="partition", maintain_order="left"
        )


def metrics_of(evals: pl.DataFrame, said: Mapping[str, Any]) -> TaskMetrics | str:
    """The two metrics of one evaluation, or in words why it has no such pair.

    `evals` are its rows. `said` may name `soft` and `hard` and give `chance`; otherwise the first metric in nats or
    bits per byte is the soft one, the first fraction the hard one, and chance the metric of that name, 0 without one.
    """
    rows = evals.filter(pl.col("metric").is_not_null()).unique("metric", keep="first", maintain_order=True).to_dicts()
    known = {row["metric"]: row for row in rows}
    soft = said.get("soft") or next((name for name, row in known.items() if row["unit"] in _SOFT_UNITS), None)
    hard = said.get("hard") or next((name for name, row in known.items() if _is_score(row)), None)
    if soft is None or hard is None:
        missing = (
            "soft metric, in nats or bits per byte" if soft is None else "hard metric, a fraction of right answers"
        )
        return f"there is no {missing}"
    for name in (soft, hard):
        if name not in known:
            return f"no run has metric {name!r}; there are {', '.join(sorted(known)) or 'none'}"
    scores = evals.filter(pl.col("metric") == hard)["value"]
    if not scores.is_between(0, 1).all():
        return f"hard metric {hard!r} is no fraction of 1: {scores.min():g} to {scores.max():g}"
    chance = said.get("chance")
    if chance is None:
        chance = known[_CHANCE]["value"] if _CHANCE in known else 0.0
    row = known[soft]
    return TaskMetrics(soft, hard, row["unit"], -1 if row["higher_is_better"] else 1, float(chance))


def _is_score(row: Mapping[str, Any]) -> bool:
    return row["unit"] == _HARD_UNIT and row["higher_is_better"] and row["metric"] != _CHANCE
