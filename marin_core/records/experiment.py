"""An experiment as it is declared before it runs: what is believed, how it is measured, and what is forecast.

What became of it is not here: outcomes of runs are `outcomes.py`, verdicts `verdicts.py`.
"""

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.errors import MarinError
from marin_core.recipes import ScalingRecipe, TrainPlan

_ID = re.compile(r"[a-z][a-z0-9_]*")


class Verdict(enum.Enum):
    """What people make of an experiment."""

    WORKED = "worked"
    PROMISING = "promising"
    MIXED = "mixed"
    DID_NOT_WORK = "did not work"
    NOT_EVALUATED = "not evaluated"
    IN_PROGRESS = "in progress"


@dataclass(frozen=True)
class SuiteForecast:
    """The forecast is the suite's own: the artifact `delphi/forecast`, committed before the held-out runs begin."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": "suite"}

    def sentence(self) -> str:
        return "The loss of the held-out runs is what delphi/forecast says, which is committed before they begin."


@dataclass(frozen=True)
class DifferenceForecast:
    """The metric of arm `first` minus that of arm `second`, mean over the pairs of runs, lies in [low, high]. Where
    several arms are `second`, the best of them is meant, whichever that turns out to be."""

    first: str
    second: str | tuple[str, ...]
    low: float
    high: float

    @property
    def seconds(self) -> tuple[str, ...]:
        return (self.second,) if isinstance(self.second, str) else self.second

    def to_json(self) -> dict[str, Any]:
        second = self.second if isinstance(self.second, str) else list(self.second)
        return {"kind": "difference", "first": self.first, "second": second, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "DifferenceForecast":
        second = data["second"]
        return cls(data["first"], second if isinstance(second, str) else tuple(second), data["low"], data["high"])

    def sentence(self) -> str:
        second = self.second if isinstance(self.second, str) else f"the best of {', '.join(self.second)}"
        return f"{self.first} minus {second}, mean over the pairs of runs, lies in {self.low:g} to {self.high:g}."


Forecast = SuiteForecast | DifferenceForecast


def forecast_of(data: Mapping[str, Any]) -> Forecast:
    """The forecast that a registration holds."""
    return SuiteForecast() if data["kind"] == "suite" else DifferenceForecast.from_json(data)


# By arm, from the plans of the ladder's cells: the plans to compare, of which the n-th of every arm belong together.
Arms = Callable[[Sequence[TrainPlan]], Mapping[str, Sequence[TrainPlan]]]


@dataclass(frozen=True)
class Experiment:
    """One experiment. It is declared in a file of its own and found through the entry points `marin.experiments`.

    `id` is lower-case with underscores; `hypothesis` what is believed and why; `metric` names what is measured, with
    its unit; `owner` is an e-mail address or `team:…`; `issue` a URL where it is discussed. It compares either the
    plans of `arms` or the assets of `selection`. `applies_to` says of a recipe whether its lab runs the experiment,
    `where` says that in words. `verdict` and `conclusion` may also be set later with `marin verdict`; they are no part
    of what is registered. `prose` is what people write about it, in Markdown.
    """

    id: str
    title: str
    hypothesis: str
    metric: str
    forecast: Forecast
    owner: str
    where: str
    issue: str | None = None
    tags: tuple[str, ...] = ()
    selection: tuple[str, ...] = ()
    arms: Arms | None = None
    applies_to: Callable[[ScalingRecipe], bool] = lambda recipe: True
    verdict: Verdict = Verdict.IN_PROGRESS
    conclusion: str = ""
    prose: str = ""

    def __post_init__(self) -> None:
        """
        Raises:
            MarinError: the declaration contradicts itself; the message names the experiment, the field and the remedy.
        """
        if not _ID.fullmatch(self.id):
            raise MarinError(f"experiment id {self.id!r} is not lower-case letters, digits and _; rename it")
        if (self.arms is None) == (not self.selection):
            raise MarinError(f"experiment {self.id} must have either arms or a selection; give exactly one of them")
        if self.arms is None and isinstance(self.forecast, DifferenceForecast):
            raise MarinError(f"experiment {self.id} forecasts a difference of arms, but has none; declare its arms")

    def declaration(self) -> dict[str, Any]:
        """What is registered, as JSON: everything but the functions, the verdict and the prose."""
        return {
            "id": self.id,
            "title": self.title,
            "hypothesis": self.hypothesis,
            "metric": self.metric,
            "forecast": self.forecast.to_json(),
            "owner": self.owner,
            "where": self.where,
            "issue": self.issue,
            "tags": list(self.tags),
            "selection": list(self.selection),
        }
