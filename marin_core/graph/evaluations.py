"""Evaluations of a trained model: the specs of each, and of all of them together."""

import dataclasses
import json
from collections.abc import Mapping

from marin_core.data.sources.declaration import FolderOrigin
from marin_core.evals.config import (
    CONTAMINATION_ROLE,
    DOCUMENTS_ROLE,
    PERPLEXITY,
    TASK_ROLE,
    EvalsConfig,
    HarnessTask,
)
from marin_core.graph.runs import EVALS
from marin_core.graph.sources import SourceArtifacts
from marin_core.graph.specs import artifact
from marin_core.store import ArtifactSpec, canonical_json


def harness_tasks(
    config: EvalsConfig, sources: Mapping[str, SourceArtifacts], tokenized: Mapping[str, ArtifactSpec]
) -> dict[str, ArtifactSpec]:
    """The files of every task that has some of its own, by the task's name. Others come with the harness."""
    return {task.name: files for task in config.tasks if (files := _task_files(task, config, sources, tokenized))}


def evaluations(
    run: ArtifactSpec,
    config: EvalsConfig,
    sources: Mapping[str, SourceArtifacts],
    tokenized: Mapping[str, ArtifactSpec],
    tasks: Mapping[str, ArtifactSpec],
) -> dict[str, ArtifactSpec]:
    """Every evaluation of a training run by name."""
    model = {"checkpoint": run, "tokenizer": run.inputs["mixture"].inputs["tokenizer"]}
    framing = next(iter(tokenized.values())).config["framing"]
    scoring = config.perplexity(framing, _shares(tokenized))
    inputs = {**model, **_documents(sources)}
    found = {PERPLEXITY: _evaluation(PERPLEXITY, "score_perplexity", scoring, inputs, run)}
    for task in config.tasks:
        # A folder and a number of questions identify the task's files.
        settings = {**dataclasses.asdict(task), "folder": None, "questions": None}
        inputs = {**model, **({TASK_ROLE: tasks[task.name]} if task.name in tasks else {})}
        found[task.name] = _evaluation(task.name, "run_harness_task", settings, inputs, run)
    return found


def collected_evals(
    run: ArtifactSpec, found: Mapping[str, ArtifactSpec], sources: Mapping[str, SourceArtifacts]
) -> ArtifactSpec:
    """All results of a run, with what the training sources had of each evaluation's text."""
    looked = {
        f"{CONTAMINATION_ROLE}{name}": made.stages["contamination"]
        for name, made in sources.items()
        if "contamination" in made.stages
    }
    return artifact(EVALS, "collect_evals", {}, {**found, **looked}, partition=run.partition)


def _evaluation(
    name: str, task: str, config: dict[str, object], inputs: dict[str, ArtifactSpec], run: ArtifactSpec
) -> ArtifactSpec:
    return artifact(f"{EVALS}/{name}", task, config, inputs, partition=run.partition)


def _task_files(
    task: HarnessTask,
    config: EvalsConfig,
    sources: Mapping[str, SourceArtifacts],
    tokenized: Mapping[str, ArtifactSpec],
) -> ArtifactSpec | None:
    name = f"harness_tasks/{task.name}"
    if task.folder is not None:
        identity = json.loads(canonical_json(FolderOrigin(task.folder).identity()))
        settings = {"name": task.name, "folder": identity}
        return artifact(name, "write_harness_task", settings, {}, context={"folder": task.folder})
    if task.questions is None:
        return None
    settings = {
        "name": task.name,
        "questions": task.questions,
        "shares": _shares(tokenized),
        "max_bytes": config.max_bytes,
    }
    return artifact(name, "write_harness_task", settings, _documents(sources))


def _documents(sources: Mapping[str, SourceArtifacts]) -> dict[str, ArtifactSpec]:
    return {f"{DOCUMENTS_ROLE}{name}": made.curated for name, made in sources.items()}


def _shares(tokenized: Mapping[str, ArtifactSpec]) -> dict[str, float]:
    """Of each validation set the share of its documents that is held out."""
    return {name: spec.config["validation_share"] for name, spec in tokenized.items()}
