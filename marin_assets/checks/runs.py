"""Checks of training runs: one, all cells of the suite, and those that were held out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from marin_assets.checks.check import Check, Finding
from marin_assets.lab import Lab
from marin_assets.tables import rows_of
from marin_core.store import ArtifactSpec

METRICS = "metrics.parquet"
_LOSSES = ("train_loss", "eval_loss")


def _loss_is_finite(lab: Lab, run: ArtifactSpec) -> Finding:
    summary = lab.store.artifact(run).record.summary
    losses = {name: summary.get(name) for name in _LOSSES}
    bad = [f"{name} is {value}" for name, value in losses.items() if not is_finite(value)]
    problems = [f"the run {summary['status']}: {', '.join(bad)}"] if bad else []
    # What is no number is no number to plot either.
    return Finding.of(problems, {name: value for name, value in losses.items() if is_finite(value)})


def _final_step_is_reached(lab: Lab, run: ArtifactSpec) -> Finding:
    artifact = lab.store.artifact(run)
    planned, done = _steps(run, artifact.record.summary)
    rows = rows_of(artifact, [METRICS])
    last = f"checkpoints/step-{planned - 1}/"
    problems = [f"{done} of {planned} steps are done"] if done != planned else []
    if rows != done:
        problems.append(f"the loss curve has {rows} steps")
    if not any(entry.path.startswith(last) for entry in artifact.record.files):
        problems.append(f"there is no {last}")
    return Finding.of(problems, {"steps": done, "planned_steps": planned})


def _runs_are_finite(lab: Lab, suite: ArtifactSpec) -> Finding:
    diverged = list(lab.store.artifact(suite).record.summary["diverged"])
    return Finding(not diverged, {"diverged": diverged}, f"diverged: {', '.join(diverged)}" if diverged else None)


def _runs_are_complete(lab: Lab, suite: ArtifactSpec) -> Finding:
    return _all_complete(lab, list(lab.graph.cells.values()))


def _heldout_are_complete(lab: Lab, heldout: ArtifactSpec) -> Finding:
    return _all_complete(lab, list(lab.heldout_runs().values()))


def _all_complete(lab: Lab, runs: Sequence[ArtifactSpec]) -> Finding:
    """One that diverged is not missing its last steps: it has none, and another check says so."""
    records = lab.store.all_current(runs)
    problems = []
    for run in runs:
        record = records[run.fingerprint]
        if record is None:
            problems.append(f"{run.partition} is not in the store")
        elif record.summary["status"] != "diverged":
            planned, done = _steps(run, record.summary)
            problems += [f"{run.partition} has {done} of {planned} steps"] if done != planned else []
    return Finding.of(problems, {"runs": len(runs), "incomplete": len(problems)})


def _steps(run: ArtifactSpec, summary: Mapping[str, Any]) -> tuple[int, int]:
    return int(run.config["plan"]["steps"]), int(summary["steps"])


def is_finite(value: Any) -> bool:
    """Whether it is a number, and neither infinite nor NaN."""
    return isinstance(value, int | float) and math.isfinite(value)


LOSS_IS_FINITE = Check("loss_is_finite", "Training and validation loss are numbers at the end.", _loss_is_finite)
FINAL_STEP_IS_REACHED = Check(
    "final_step_is_reached",
    "The run did every step of its plan, its loss curve has as many, and the checkpoint of the last one is there.",
    _final_step_is_reached,
)
RUNS_ARE_FINITE = Check("runs_are_finite", "No run of the suite diverged.", _runs_are_finite)
RUNS_ARE_COMPLETE = Check(
    "runs_are_complete", "Every run of the ladder did every step of its plan.", _runs_are_complete
)
HELD_OUT_RUNS_ARE_COMPLETE = Check(
    "held_out_runs_are_complete", "Every held-out run did every step of its plan.", _heldout_are_complete
)
