"""Evaluations of a trained model: the specs of each, and of all of them together."""

import dataclasses
from collections.abc import Mapping

from marin_core.evals.config import EvalsConfig
from marin_core.graph.runs import EVALS
from marin_core.graph.sources import SourceArtifacts
from marin_core.graph.specs import artifact
from marin_core.store import ArtifactSpec

PERPLEXITY = "perplexity"


def evaluations(
    run: ArtifactSpec,
    config: EvalsConfig,
    sources: Mapping[str, SourceArtifacts],
    tokenized: Mapping[str, ArtifactSpec],
) -> dict[str, ArtifactSpec]:
    """Every evaluation of a training run by name. All of them may read the validation sets' documents."""
    tokenizer = run.inputs["mixture"].inputs["tokenizer"]
    documents = {f"documents/{name}": made.curated for name, made in sources.items()}
    inputs = {"checkpoint": run, "tokenizer": tokenizer, **documents}
    shares = {name: spec.config["validation_share"] for name, spec in tokenized.items()}
    framing = next(iter(tokenized.values())).config["framing"]
    found = {PERPLEXITY: _evaluation(PERPLEXITY, "score_perplexity", config.perplexity(framing, shares), inputs, run)}
    for task in config.tasks:
        settings = {**dataclasses.asdict(task), "shares": shares}
        found[task.name] = _evaluation(task.name, "run_harness_task", settings, inputs, run)
    return found


def collected_evals(
    run: ArtifactSpec, found: Mapping[str, ArtifactSpec], sources: Mapping[str, SourceArtifacts]
) -> ArtifactSpec:
    """All results of a run, with what the training sources had of each evaluation's text."""
    looked = {
        f"contamination/{name}": made.stages["contamination"]
        for name, made in sources.items()
        if "contamination" in made.stages
    }
    return artifact(EVALS, "collect_evals", {}, {**found, **looked}, partition=run.partition)


def _evaluation(
    name: str, task: str, config: dict[str, object], inputs: dict[str, ArtifactSpec], run: ArtifactSpec
) -> ArtifactSpec:
    return artifact(f"{EVALS}/{name}", task, config, inputs, partition=run.partition)
