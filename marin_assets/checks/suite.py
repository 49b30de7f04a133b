"""Checks of the scaling suite's results, and of experiments."""

from marin_assets.checks.check import Check, Finding
from marin_assets.lab import Lab
from marin_core.store import ArtifactSpec


def _minima_are_inside(lab: Lab, isoflop: ArtifactSpec) -> Finding:
    flagged = dict(lab.store.artifact(isoflop).record.summary["flagged"])
    return Finding.of([f"{budget}: {why}" for budget, why in flagged.items()], {"left_out": flagged})


def _forecast_came_first(lab: Lab, verdict: ArtifactSpec) -> Finding:
    verdicts = lab.store.artifact(verdict).read_json("verdict.json")["verdicts"]
    late = [one["partition"] for one in verdicts if not one["registered_before_run"]]
    found = f"The forecast was registered after these runs had begun: {', '.join(late)}." if late else None
    return Finding(not late, {"began_before_forecast": late}, found)


def _experiment_was_registered_first(lab: Lab, result: ArtifactSpec) -> Finding:
    first = bool(lab.store.artifact(result).record.summary["registered_before_runs"])
    found = None if first else "The experiment was registered after a run of it had begun."
    return Finding(first, {"registered_before_runs": first}, found)


MINIMA_ARE_INSIDE_THE_GRID = Check(
    "minima_are_inside_the_grid",
    "Every budget has a convex curve with its minimum among its runs; others stay out of the laws.",
    _minima_are_inside,
)
FORECAST_CAME_FIRST = Check(
    "forecast_came_first",
    "The forecast was registered before any of the held-out runs began.",
    _forecast_came_first,
)
EXPERIMENT_WAS_REGISTERED_FIRST = Check(
    "forecast_came_first",
    "The forecast was registered before all runs of one of the compared arms, or of the suite's held-out runs, began.",
    _experiment_was_registered_first,
)
