"""The arms of an experiment held against each other, and against what was forecast of their difference."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.records.difference import leaves
from marin_core.records.experiment import DifferenceForecast


@dataclass(frozen=True)
class Pair:
    """One run of every arm. `losses` are by arm, None of a run that has none; `difference` is the first arm's minus
    the second's."""

    cell: str
    losses: Mapping[str, float | None]
    difference: float | None

    def to_json(self) -> dict[str, Any]:
        return {"cell": self.cell, "losses": dict(self.losses), "difference": self.difference}


@dataclass(frozen=True)
class Comparison:
    """`means` are the mean losses of the arms, in nats per token, over their runs that came to an end. `second` is, of
    the arms that the forecast names, the best. `registered_first` says that the forecast was committed before all runs
    of one side began: those of the other may have been there."""

    forecast: DifferenceForecast
    second: str
    means: Mapping[str, float | None]
    pairs: Sequence[Pair]
    diverged: Sequence[str]
    registered: str
    registered_first: bool

    @property
    def differences(self) -> list[float]:
        """Of the pairs in which both runs came to an end."""
        return [pair.difference for pair in self.pairs if pair.difference is not None]

    @property
    def difference(self) -> float | None:
        """The mean over the pairs; None if in no pair both runs came to an end."""
        return statistics.fmean(self.differences) if self.differences else None

    @property
    def forecast_held(self) -> bool:
        return self.difference is not None and self.forecast.low <= self.difference <= self.forecast.high

    def summary(self) -> dict[str, Any]:
        """The numbers for the record."""
        return {
            "compared": f"{self.forecast.first} minus {self.second}",
            "difference": self.difference,
            "forecast_low": self.forecast.low,
            "forecast_high": self.forecast.high,
            "forecast_held": self.forecast_held,
            "registered_before_runs": self.registered_first,
            "pairs_compared": f"{len(self.differences)} of {len(self.pairs)}",
            "diverged": list(self.diverged),
            **{f"loss_{arm}": mean for arm, mean in self.means.items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "first": self.forecast.first,
            "second": self.second,
            "pairs": [pair.to_json() for pair in self.pairs],
            "registered": self.registered,
        }


def compare(forecast: DifferenceForecast, rows: Sequence[Mapping[str, Any]], registered: str) -> Comparison:
    """Compare runs, rows with `arm`, `pair`, `cell`, `partition`, `status`, `loss` and `began`. Only what came to an
    end has a loss that counts."""
    losses = {(row["arm"], row["pair"]): row["loss"] for row in rows if row["status"] == "succeeded"}
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    cells = {row["pair"]: row["cell"] for row in rows}
    means = {arm: [loss for (of, _), loss in losses.items() if of == arm] for arm in arms}

    def difference(second: str, pair: int) -> float | None:
        both = losses.get((forecast.first, pair)), losses.get((second, pair))
        return None if both[0] is None or both[1] is None else both[0] - both[1]

    def shortcoming(second: str) -> tuple[int, float]:
        found = [value for pair in cells if (value := difference(second, pair)) is not None]
        return -len(found), -statistics.fmean(found) if found else 0.0

    # An arm that lost the hard pairs is not the better for it.
    second = min(forecast.seconds, key=shortcoming)
    return Comparison(
        forecast=forecast,
        second=second,
        means={arm: statistics.fmean(found) if found else None for arm, found in means.items()},
        pairs=[
            Pair(cell, {arm: losses.get((arm, pair)) for arm in arms}, difference(second, pair))
            for pair, cell in sorted(cells.items())
        ],
        diverged=[str(row["partition"]) for row in rows if row["status"] == "diverged"],
        registered=registered,
        registered_first=any(_all_later(rows, side, registered) for side in ((forecast.first,), forecast.seconds)),
    )


def _all_later(rows: Sequence[Mapping[str, Any]], arms: Sequence[str], registered: str) -> bool:
    return all(row["began"] > registered for row in rows if row["arm"] in arms)


def differing_settings(plans: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By the name of a setting that is not the same in all plans, its value in each arm; None where it has none."""
    flat = {arm: dict(leaves(plan)) for arm, plan in plans.items()}
    names = list(dict.fromkeys(name for settings in flat.values() for name in settings))
    values = {name: {arm: settings.get(name) for arm, settings in flat.items()} for name in names}
    return {name: of_arms for name, of_arms in values.items() if len({repr(v) for v in of_arms.values()}) > 1}
