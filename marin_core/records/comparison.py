"""The arms of an experiment held against each other, and against what was forecast of their difference."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """`means` are the mean losses of the arms, in nats per token, over their runs that came to an end; `differences`
    those of the pairs, first minus second, where both did. `registered_first` says that the forecast was committed
    before all runs of one of the two arms began: a run of the other may have been there."""

    first: str
    second: str
    low: float
    high: float
    means: Mapping[str, float | None]
    differences: Sequence[float]
    diverged: Sequence[str]
    registered: str
    registered_first: bool

    @property
    def difference(self) -> float | None:
        """The mean over the pairs; None if in no pair both runs came to an end."""
        return statistics.fmean(self.differences) if self.differences else None

    @property
    def forecast_held(self) -> bool:
        return self.difference is not None and self.low <= self.difference <= self.high

    def summary(self) -> dict[str, Any]:
        """The numbers for the record."""
        return {
            "difference": self.difference,
            "forecast_low": self.low,
            "forecast_high": self.high,
            "forecast_held": self.forecast_held,
            "registered_before_runs": self.registered_first,
            "diverged": list(self.diverged),
            **{f"loss_{arm}": mean for arm, mean in self.means.items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "first": self.first,
            "second": self.second,
            "differences": list(self.differences),
            "registered": self.registered,
        }


def compare(forecast: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], registered: str) -> Comparison:
    """Compare runs, rows with `arm`, `pair`, `partition`, `status`, `loss` and `began`, by a difference forecast."""
    first, second = forecast["first"], forecast["second"]
    losses = {(row["arm"], row["pair"]): row["loss"] for row in rows if row["status"] == "succeeded"}
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    pairs = sorted({pair for _, pair in losses})
    both = [pair for pair in pairs if (first, pair) in losses and (second, pair) in losses]
    means = {arm: [loss for (of, _), loss in losses.items() if of == arm] for arm in arms}
    return Comparison(
        first=first,
        second=second,
        low=forecast["low"],
        high=forecast["high"],
        means={arm: statistics.fmean(found) if found else None for arm, found in means.items()},
        differences=[losses[first, pair] - losses[second, pair] for pair in both],
        diverged=[f"{row['partition']}" for row in rows if row["status"] == "diverged"],
        registered=registered,
        registered_first=any(_all_later(rows, arm, registered) for arm in (first, second)),
    )


def _all_later(rows: Sequence[Mapping[str, Any]], arm: str, registered: str) -> bool:
    return all(row["began"] > registered for row in rows if row["arm"] == arm)
