"""Checks of what is made of a trained model: its evaluations and its export."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from marin_assets.checks.check import Check, Finding
from marin_assets.checks.runs import is_finite
from marin_assets.lab import Lab
from marin_core.store import ArtifactSpec

SCORES = "evals.parquet"
_SHOWN = 3


def _evaluations_succeeded(lab: Lab, evaluated: ArtifactSpec) -> Finding:
    summary = lab.store.artifact(evaluated).record.summary
    failed = {status: summary[status] for status in ("failed", "infra_failed") if summary.get(status)}
    problems = [f"{status.replace('_', ' ')}: {', '.join(map(str, names))}" for status, names in failed.items()]
    return Finding.of(problems, failed)


def _scores_are_sane(lab: Lab, evaluated: ArtifactSpec) -> Finding:
    rows = _scores(lab, evaluated)
    vocabulary = evaluated.inputs["perplexity"].inputs["tokenizer"] if "perplexity" in evaluated.inputs else None
    entries = lab.store.artifact(vocabulary).record.summary["vocab_size"] if vocabulary else None
    guess = math.log(entries) if entries else math.inf
    problems = [problem for row in rows for problem in _score_problems(row, guess)]
    numbers: dict[str, Any] = {"scores": len(rows), "insane": len(problems)}
    if math.isfinite(guess):
        numbers["uniform_guess_nats_per_token"] = guess
    return Finding.of(problems[:_SHOWN], numbers)


def _score_problems(row: Mapping[str, Any], guess: float) -> Iterator[str]:
    name, value, unit = f"{row['evaluation']} {row['metric']}", row["value"], row["unit"]
    if row["status"] != "succeeded":
        return
    if not row["examples"]:
        yield f"{name} is of no examples"
    if not is_finite(value):
        yield f"{name} is {value}"
    elif unit in ("bits per byte", "nats per token") and not value > 0:
        yield f"{name} is {value:g}, and no text is for free"
    elif unit == "nats per token" and value > guess:
        yield f"{name} is {value:.4g}, a uniform guess takes {guess:.4g}"
    elif unit == "fraction" and not 0 <= value <= 1:
        yield f"{name} is {value:g}, which is no fraction"


def _scores(lab: Lab, evaluated: ArtifactSpec) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    with lab.store.artifact(evaluated).open(SCORES) as file:
        return pq.read_table(file).to_pylist()


def _reads_back(lab: Lab, export: ArtifactSpec) -> Finding:
    summary = lab.store.artifact(export).record.summary
    difference, tolerance = float(summary["max_abs_difference"]), float(summary["tolerance"])
    problems = [] if difference <= tolerance else [f"logits differ by {difference:.3g}, allowed are {tolerance:.3g}"]
    return Finding.of(problems, {"max_abs_difference": difference, "tolerance": tolerance})


EVALUATIONS_SUCCEEDED = Check(
    "evaluations_succeeded",
    "No evaluation of the model failed, by itself or for want of something that it needs.",
    _evaluations_succeeded,
)
SCORES_ARE_SANE = Check(
    "scores_are_sane",
    "Losses are positive and no worse than a uniform guess, fractions are between 0 and 1, and each is of examples.",
    _scores_are_sane,
)
EXPORT_READS_BACK = Check(
    "export_reads_back",
    "Another library reads the folder back to the logits of the checkpoint, within the tolerance of its numbers.",
    _reads_back,
)
