"""Checks of the tokenizer, of token shards, and of the mixture that runs read."""

import math
from collections.abc import Mapping
from typing import Any

from marin_assets.checks.check import Check, Finding
from marin_assets.lab import Lab
from marin_core.store import Artifact, ArtifactSpec

LEDGER = "shard_ledger.json"
_SPLITS = ("train", "validation")
_IDS = "input_ids"


def _vocabulary_is_declared(lab: Lab, spec: ArtifactSpec) -> Finding:
    entries = int(lab.store.artifact(spec).record.summary["vocab_size"])
    declared, expected = int(spec.config["vocab_size"]), lab.graph.scale.recipe.vocab_size
    problems = [f"it has {entries} entries, the profile declares {declared}"] if entries != declared else []
    if entries != expected:
        problems.append(f"it has {entries} entries, the models of the recipe {expected}; no run can be trained with it")
    return Finding.of(problems, {"vocab_size": entries, "declared": declared, "of_models": expected})


def _token_totals_agree(lab: Lab, spec: ArtifactSpec) -> Finding:
    artifact = lab.store.artifact(spec)
    summary = artifact.record.summary
    problems = [problem for split in _SPLITS for problem in _split_problems(artifact, split)]
    documents = sum(summary[f"{split}_documents"] for split in _SPLITS)
    left_out = summary.get("documents_left_out", 0)
    curated = int(lab.store.artifact(spec.inputs["curated"]).record.summary["documents"])
    if documents + left_out != curated:
        problems.append(f"{documents} documents and {left_out} left out are not the {curated} curated ones")
    tokens = {f"{split}_tokens": summary[f"{split}_tokens"] for split in _SPLITS}
    return Finding.of(problems, {**tokens, "documents": documents, "curated_documents": curated})


def _split_problems(artifact: Artifact, split: str) -> list[str]:
    """Where the ledger of a split disagrees with itself or with the summary."""
    path = f"{split}/{LEDGER}"
    summary = artifact.record.summary
    tokens, documents = summary[f"{split}_tokens"], summary[f"{split}_documents"]
    if all(entry.path != path for entry in artifact.record.files):
        return [f"there is no {path}, and {tokens} tokens are said to be in it"] if tokens or documents else []
    ledger = artifact.read_json(path)
    in_parts = sum(counts[_IDS] for counts in ledger["field_counts_by_shard"].values())
    told = {"tokens": (tokens, ledger["field_counts"][_IDS], in_parts)}
    told["documents"] = (documents, ledger["total_num_rows"], sum(ledger["shard_rows"].values()))
    return [
        f"{split} {unit}: {ours} by the summary, {whole} by the ledger, {parts} by its parts"
        for unit, (ours, whole, parts) in told.items()
        if not ours == whole == parts
    ]


def _shares_are_declared(lab: Lab, spec: ArtifactSpec) -> Finding:
    mixture = lab.store.artifact(spec).read_json("mixture.json")
    block = int(mixture["block_size"])
    problems = [problem for stage in mixture["stages"] for problem in _stage_problems(stage, block)]
    furthest = max(_distance(stage, name) for stage in mixture["stages"] for name in stage["nominal_shares"])
    return Finding.of(problems, {"largest_difference": furthest, "tolerance": 1 / block, "block_size": block})


def _stage_problems(stage: Mapping[str, Any], block: int) -> list[str]:
    at = f"from sequence {stage['start']}"
    problems = [
        f"{at} {name} has {stage['effective_shares'].get(name, 0.0):.2%}, nominal are {nominal:.2%}"
        for name, nominal in stage["nominal_shares"].items()
        if not _distance(stage, name) <= 1 / block
    ]
    total = sum(stage["effective_shares"].values())
    return problems if math.isclose(total, 1.0, abs_tol=1e-9) else [*problems, f"{at} shares add up to {total:.4f}"]


def _distance(stage: Mapping[str, Any], name: str) -> float:
    return abs(float(stage["effective_shares"].get(name, 0.0)) - float(stage["nominal_shares"][name]))


VOCABULARY_IS_AS_DECLARED = Check(
    "vocabulary_is_as_declared",
    "The tokenizer has as many entries as the profile declares, and as the models of the recipe.",
    _vocabulary_is_declared,
    blocking=True,
)
TOKEN_TOTALS_AGREE = Check(
    "token_totals_agree",
    "Tokens and documents of all shards add up to the ledger and to the summary, and all curated documents are in "
    "train, in validation, or left out with a reason.",
    _token_totals_agree,
    blocking=True,
)
SHARES_ARE_AS_DECLARED = Check(
    "shares_are_as_declared",
    "In every block of sequences each component has the share that its weight gives it, to within one sequence.",
    _shares_are_declared,
)
