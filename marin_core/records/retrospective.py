"""The retrospective of an experiment in Markdown: what is known, and in between what people wrote."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marin_core.markdown import template
from marin_core.records.experiment import DifferenceForecast, SuiteForecast

_TEMPLATE = Path(__file__).with_name("retrospective.md.jinja")


def render_retrospective(
    *,
    declared: Mapping[str, Any],
    registered: str,
    ruling: Mapping[str, Any],
    prose: str,
    result: Mapping[str, Any] | None,
    summary: Mapping[str, Any],
) -> str:
    """The report. `declared` is what was registered and `registered` when; the prose goes in as it is."""
    return template(_TEMPLATE, "–").render(
        declared=declared,
        registered=registered,
        forecast=forecast_sentence(declared["forecast"]),
        ruling=ruling,
        prose=prose.strip(),
        result=result,
        summary=summary,
    )


def forecast_sentence(forecast: Mapping[str, Any]) -> str:
    """A registered forecast in words."""
    if forecast["kind"] == "suite":
        return SuiteForecast().sentence()
    return DifferenceForecast(**{key: value for key, value in forecast.items() if key != "kind"}).sentence()
