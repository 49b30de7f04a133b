"""Tasks of the evaluations: a checkpoint to what it scores, and all results of a checkpoint together."""

import time
from typing import Any

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.data.tokens.tokenizer import read_tokenizer
from marin_core.errors import MarinError
from marin_core.evals.config import CONTAMINATION_ROLE, DOCUMENTS_ROLE, PERPLEXITY
from marin_core.evals.contamination import found_in, removed_documents, with_contamination
from marin_core.evals.documents import are_conversations, validation_texts
from marin_core.evals.perplexity import VERSION, DocumentScores, LossNotFinite, score_documents
from marin_core.evals.result import RESULT, EvalResult, ModelIdentity, memory_ran_out
from marin_core.evals.scoring import Speed
from marin_core.graph.sources import EVALUATION_ROLE
from marin_core.recipes import TrainPlan
from marin_core.store import Artifact
from marin_core.training.model import trained_model


def evaluated_plan(checkpoint: Artifact) -> TrainPlan:
    """The plan of a training artifact's model."""
    return TrainPlan.from_json(checkpoint.read_json("plan.json"))


def no_model(checkpoint: Artifact) -> str | None:
    """Why a training artifact has no model to evaluate, None if it has one."""
    summary = checkpoint.record.summary
    if summary["status"] == "succeeded":
        return None
    return f"the run {summary['status']} after {summary['steps']} steps and left no model; nothing can be evaluated"


def score_perplexity(build: Build) -> Outcome:
    """`result.json`, and `documents.parquet` where the model was scored. Config: `max_bytes`, `framing`, `shares` by
    validation set. Inputs: `checkpoint`, `tokenizer`, and of each set its `documents/<set>`. Sets of conversations are
    left out: training sees them in a template.

    Raises:
        MarinError: a validation set is empty, or what was read is damaged.
    """
    checkpoint = build.input("checkpoint")
    plan = evaluated_plan(checkpoint)
    about: dict[str, Any] = {
        "evaluation": PERPLEXITY,
        "version": VERSION,
        "model": ModelIdentity.of(checkpoint, plan),
        "sources": tuple(build.spec.config["shares"]),
    }
    began = time.monotonic()
    speed = None
    if cause := no_model(checkpoint):
        result = EvalResult("failed", error=cause, **about)
    else:
        try:
            scores, speed = _scored(build, plan, checkpoint)
        except LossNotFinite as error:
            result = EvalResult("failed", error=str(error), **about)
        except Exception as error:
            if not (cause := memory_ran_out(error)):
                raise
            result = EvalResult("infra_failed", error=cause, **about)
        else:
            scores.write(build.writer)
            details = {"sets": scores.sizes()}
            result = EvalResult(
                "succeeded", examples=len(scores.table), metrics=scores.metrics(), details=details, **about
            )
    build.writer.write_json(RESULT, result.to_json())
    _tell(build, result, speed)
    took = {"total_seconds": round(time.monotonic() - began, 3), **(speed.to_json() if speed else {})}
    return Outcome({**result.summary, "speed": took})


def collect_evals(build: Build) -> Outcome:
    """`evals.json`, all results of one checkpoint with the contamination of their text beside them, and `evals.parquet`
    (partition, run, evaluation, version, status, examples, metric, value, stderr, unit, higher_is_better,
    contaminated_documents), a row for each metric; for a result without any, one with none.

    Inputs: the results, whatever their roles, and every `contamination/<source>`.
    """
    contamination = {
        role.removeprefix(CONTAMINATION_ROLE): build.input(role)
        for role in build.spec.inputs
        if role.startswith(CONTAMINATION_ROLE)
    }
    roles = [role for role in build.spec.inputs if not role.startswith(CONTAMINATION_ROLE)]
    results = [EvalResult.from_json(build.input(role).read_json(RESULT)) for role in roles]
    found = _contamination_of_sources(build, contamination, {source for each in results for source in each.sources})
    results = [with_contamination(result, found) for result in results]
    build.writer.write_json("evals.json", [result.to_json() for result in results])
    with build.writer.open("evals.parquet") as file:
        pl.DataFrame([row for result in results for row in _rows(result)], schema=_ROWS).write_parquet(file)
    by_status = {
        status: sorted(result.evaluation for result in results if result.status == status)
        for status in ("failed", "infra_failed")
    }
    scores = {r.evaluation: {name: metric.value for name, metric in r.metrics.items()} for r in results if r.metrics}
    contaminated = {r.evaluation: count for r in results if (count := removed_documents(r)) is not None}
    return Outcome({"evaluations": len(results), **by_status, "scores": scores, "contaminated_documents": contaminated})


_ROWS = pl.Schema(
    {
        "partition": pl.String,
        "run": pl.String,
        "evaluation": pl.String,
        "version": pl.String,
        "status": pl.String,
        "examples": pl.Int64,
        "metric": pl.String,
        "value": pl.Float64,
        "stderr": pl.Float64,
        "unit": pl.String,
        "higher_is_better": pl.Boolean,
        "contaminated_documents": pl.Int64,
    }
)


def _scored(build: Build, plan: TrainPlan, checkpoint: Artifact) -> tuple[DocumentScores, Speed]:
    config, tokenizer = build.spec.config, build.input("tokenizer")
    texts = []
    for name, share in config["shares"].items():
        documents = build.input(f"{DOCUMENTS_ROLE}{name}")
        if are_conversations(documents):
            build.log(f"{build.spec.label}: validation set {name} is left out, it holds conversations")
        else:
            texts += validation_texts(name, documents, share, config["max_bytes"])
    if not texts:
        raise MarinError(f"{build.spec.label}: there is no validation set of text; give the profile a source of text")
    files = read_tokenizer(tokenizer)
    if files.vocab_size != plan.vocab_size:
        raise MarinError(
            f"{tokenizer.record.name} has {files.vocab_size} entries, the model of {build.spec.partition} "
            f"{plan.vocab_size}; evaluate it with the tokenizer that it was trained with"
        )
    folder = checkpoint.path("checkpoints", f"step-{plan.steps - 1}")
    with trained_model(plan, folder, tokenizer.url, build.options.scratch) as trained:
        return score_documents(trained, files, config["framing"], texts, build.writer.check)


def _tell(build: Build, result: EvalResult, speed: Speed | None) -> None:
    if result.error is not None:
        build.log(f"{build.spec.label} {result.status}: {result.error}")
        return
    macro = result.metrics["macro/bits_per_byte"].value
    rate = f", {speed.to_json().get('tokens_per_second', 0):,.0f} tokens a second" if speed else ""
    build.log(f"{build.spec.label}: {macro:.4f} bits per byte over {result.examples} documents{rate}")


def _contamination_of_sources(
    build: Build, contamination: dict[str, Artifact], sources: set[str]
) -> dict[str, dict[str, Any]]:
    """What was found of each evaluation source that the training sources were held against."""
    found = {}
    for source in sorted(sources):
        held_against = {
            name: artifact
            for name, artifact in contamination.items()
            if f"{EVALUATION_ROLE}{source}" in artifact.record.inputs
        }
        if held_against:
            entry = next(iter(held_against.values())).record.inputs[f"{EVALUATION_ROLE}{source}"]
            items = build.store.committed(entry.name, entry.fingerprint).record.summary["documents"]
            found[source] = found_in(source, items, held_against)
    return found


def _rows(result: EvalResult) -> list[dict[str, Any]]:
    about = {
        "partition": result.model.partition,
        "run": result.model.run,
        "evaluation": result.evaluation,
        "version": result.version,
        "status": result.status,
        "examples": result.examples,
        "contaminated_documents": removed_documents(result),
    }
    if not result.metrics:
        return [{**about, "metric": None, "value": None, "stderr": None, "unit": None, "higher_is_better": None}]
    return [
        {
            **about,
            "metric": name,
            "value": metric.value,
            "stderr": metric.stderr,
            "unit": metric.unit,
            "higher_is_better": metric.higher_is_better,
        }
        for name, metric in result.metrics.items()
    ]
