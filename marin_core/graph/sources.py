"""What is made of one source: the specs of its stages, from its files to the documents that are tokenized."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_core.data.contamination.config import contamination_config
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.quality.config import rules_config
from marin_core.data.sources.declaration import FolderOrigin, Source
from marin_core.graph.specs import artifact
from marin_core.store import ArtifactSpec, canonical_json

EVALUATION_ROLE = "evaluation/"


@dataclass(frozen=True)
class SourceArtifacts:
    """The specs of a source by stage, each made of those before it."""

    source: Source
    stages: Mapping[str, ArtifactSpec]

    @property
    def normalized(self) -> ArtifactSpec:
        return self.stages["normalized"]

    @property
    def curated(self) -> ArtifactSpec:
        """What is tokenized: the last stage. Of an evaluation source every document counts, so it is the normalized."""
        return list(self.stages.values())[-1]


def evaluation_artifacts(source: Source) -> SourceArtifacts:
    """An evaluation source is normalized and otherwise left as it is."""
    raw = _stage(source, "raw", "acquire", {"origin": source.origin.identity()}, {})
    return SourceArtifacts(source, {"raw": raw, "normalized": _normalized(source, raw)})


def training_artifacts(
    source: Source, near_duplicates: MinHashConfig, evaluations: Mapping[str, ArtifactSpec]
) -> SourceArtifacts:
    """All stages of a source that is trained on; `evaluations` are the normalized texts it must not contain."""
    raw = _stage(source, "raw", "acquire", {"origin": source.origin.identity()}, {})
    stages = {"raw": raw, "normalized": _normalized(source, raw)}

    def add(stage: str, task: str, config: dict[str, Any], inputs: Mapping[str, ArtifactSpec]) -> None:
        stages[stage] = _stage(source, stage, task, config, inputs)

    def so_far(*names: str) -> dict[str, ArtifactSpec]:
        return {name: stages[name] for name in names}

    add("quality", "judge_quality", rules_config(source.curation.rules), so_far("normalized"))
    add(
        "near_duplicates",
        "find_near_duplicates",
        {"enabled": source.curation.near_duplicates, **dataclasses.asdict(near_duplicates)},
        so_far("normalized", "quality"),
    )
    references = {f"{EVALUATION_ROLE}{name}": spec for name, spec in evaluations.items()}
    add(
        "contamination",
        "find_contamination",
        contamination_config(),
        {**so_far("normalized", "quality", "near_duplicates"), **references},
    )
    add("curated", "curate", {}, so_far("normalized", "quality", "near_duplicates", "contamination"))
    return SourceArtifacts(source, stages)


def tokenizer_folder(folder: str) -> dict[str, Any]:
    """What identifies a tokenizer in a local folder: its content, not its place."""
    identity = FolderOrigin(folder, ("tokenizer*.json", "chat_template*")).identity()
    return json.loads(canonical_json(identity))


def _normalized(source: Source, raw: ArtifactSpec) -> ArtifactSpec:
    config = {"licence": source.licence, "layout": dataclasses.asdict(source.layout)}
    return _stage(source, "normalized", "normalize", config, {"raw": raw})


def _stage(
    source: Source, stage: str, task: str, config: dict[str, Any], inputs: Mapping[str, ArtifactSpec]
) -> ArtifactSpec:
    return artifact(
        f"{stage}/{source.name}",
        task,
        {"source": source.name, **config},
        dict(inputs),
        context={"source": source.to_json()},
    )
