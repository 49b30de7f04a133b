"""The retrospective of an experiment in Markdown: what is known, and in between what people wrote."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.markdown import cell, template
from marin_core.records.experiment import forecast_of
from marin_core.records.outcome import ExitClass
from marin_core.store import ArtifactRecord
from marin_core.store.spec import digest

_TEMPLATE = Path(__file__).with_name("retrospective.md.jinja")
_NONE = "–"


@dataclass(frozen=True)
class Retrospective:
    """What a report is made of. `declared` is what was registered, `registered` when; `prose` goes in as it is.

    `failed` are recorded attempts that came to nothing. `record` is that of the experiment's result, `result` and
    `runs` (rows) what it says; None and empty where the runs belong to another lab.
    """

    declared: Mapping[str, Any]
    registered: str
    ruling: Mapping[str, Any]
    prose: str
    failed: Sequence[Mapping[str, Any]] = ()
    record: ArtifactRecord | None = None
    result: Mapping[str, Any] | None = None
    runs: Sequence[Mapping[str, Any]] = ()

    @property
    def forecast(self) -> str:
        return forecast_of(self.declared["forecast"]).sentence()

    @property
    def summary(self) -> Mapping[str, Any]:
        return self.record.summary if self.record else {}

    @property
    def there_before(self) -> list[str]:
        """The arms of which a run had begun when the forecast was registered."""
        return [arm for arm in self.arms if any(self._began_first(run) for run in self.runs if run["arm"] == arm)]

    @property
    def arms(self) -> list[str]:
        """In the order in which they are declared."""
        return list(dict.fromkeys(run["arm"] for run in self.runs))

    @property
    def tables(self) -> list[str]:
        """The files behind the numbers and the figures."""
        return [file.path for file in self.record.files if file.path.endswith(".parquet")] if self.record else []

    @property
    def diverged(self) -> list[Mapping[str, Any]]:
        """Runs without a loss of which no outcome says so already."""
        told = {outcome["partition"] for outcome in self.failed if outcome["exit_class"] == ExitClass.DIVERGED.value}
        return [run for run in self.runs if run["status"] == "diverged" and run["partition"] not in told]

    def _began_first(self, run: Mapping[str, Any]) -> bool:
        return run.get("began") is not None and run["began"] <= self.registered

    @property
    def command(self) -> str:
        """What runs the experiment again, or for the first time."""
        suite = "--select 'delphi/*' && dagster asset materialize " if self.declared["selection"] else ""
        return f"dagster asset materialize {suite}--select 'experiments/{self.declared['id']}/*'"


def render_retrospective(of: Retrospective) -> str:
    """The report. Figures are images beside it, by the names in the summary."""
    page = template(_TEMPLATE, _NONE, loss=_loss, setting=_setting)
    return page.render(of=of, declared=of.declared, ruling=of.ruling)


def _loss(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4f}"


def _setting(value: Any) -> str:
    return _NONE if value is None else f"{value:.6g}" if isinstance(value, float) else cell(value)


@functools.cache
def look() -> str:
    """Digest of the template: who changes it does not read the old report for long."""
    return digest(_TEMPLATE.read_text())
