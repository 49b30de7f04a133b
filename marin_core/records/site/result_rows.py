"""What the summary of an experiment's result says, in rows that a reader understands."""

from collections.abc import Mapping
from typing import Any

from marin_core.records.site.render import value

# In this order.
_LABELS = {
    "compared": "Compared",
    "difference": "Difference, nats per token",
    "forecast": "Forecast of the difference",
    "pairs_compared": "Pairs in which both runs ended",
    "ladder_runs": "Runs of the ladder",
    "held_out_runs": "Held-out runs",
    "inside_interval": "Held-out runs inside the forecast's interval",
}
_LOSS = "loss_"
_DIVERGED = "diverged"
# The page says these in words, or shows them.
_SAID_ELSEWHERE = {"forecast_low", "forecast_high", "forecast_held", "registered_before_runs", "figures"}


def result_rows(summary: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(what it is, its value) of everything in the summary that is not said elsewhere on the page."""
    told = dict(summary)
    if "forecast_low" in told and "forecast_high" in told:
        told["forecast"] = f"{value(told['forecast_low'])} to {value(told['forecast_high'])}"
    rows = [(label, told[name]) for name, label in _LABELS.items() if name in told]
    losses = [name for name in told if name.startswith(_LOSS)]
    rows += [(f"Mean loss of {name.removeprefix(_LOSS)}, nats per token", told[name]) for name in losses]
    if _DIVERGED in told:
        rows.append(("Runs that diverged", told[_DIVERGED]))
    known = {*_LABELS, *losses, _DIVERGED, *_SAID_ELSEWHERE}
    return rows + [(name.replace("_", " "), found) for name, found in told.items() if name not in known]
