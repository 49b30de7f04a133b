"""From sources to mixtures: groups `raw`, `normalized`, `quality`, `near_duplicates`, `contamination`, `curated`,
`tokenizer`, `tokenized`, `mixture`. The stages of a source follow from its declaration."""

import dagster as dg

from marin_assets.assets.factory import artifact_asset
from marin_assets.checks import sources, tokens
from marin_assets.freshness import FRESH_WITHIN_MONTHS
from marin_assets.vocabulary import source_tags
from marin_core.graph import LabGraph
from marin_core.graph.sources import SourceArtifacts

# What a stage's artifact is, and its kinds.
_STAGES = {
    "raw": ("The files of {source} as they are at their origin, with their hashes.", {"files"}),
    "normalized": (
        "Documents of {source}: text normalized, exact duplicates removed, sorted by the hash of the text. What could "
        "not be read is kept as rejects.",
        {"parquet"},
    ),
    "quality": ("Which documents of {source} its quality rules keep, and why not the others.", {"parquet"}),
    "near_duplicates": ("Clusters of near-duplicate documents of {source}, and which of them stay.", {"parquet"}),
    "contamination": ("Documents of {source} that contain evaluation text, and which.", {"parquet"}),
    "curated": ("The documents of {source} to train on, and why the others were removed.", {"parquet"}),
    "tokenized": (
        "Documents of {source} as token shards in Levanter's cache format; train and validation are disjoint.",
        {"tokens"},
    ),
}


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    tokenizer = artifact_asset(
        graph.tokenizer,
        lambda g: g.tokenizer,
        "The tokenizer: trained on a fixed sample of the curated text, or fetched as it was published.",
        kinds={"tokens"},
        checks=[tokens.VOCABULARY_IS_AS_DECLARED],
    )
    mixture = artifact_asset(
        graph.mixture,
        lambda g: g.mixture,
        "Which tokenized sources a run reads, with nominal and effective shares.",
        kinds={"tokens"},
        checks=[tokens.SHARES_ARE_AS_DECLARED],
    )
    return [asset for made in graph.sources.values() for asset in _source_assets(graph, made)] + [tokenizer, mixture]


def _source_assets(graph: LabGraph, made: SourceArtifacts) -> list[dg.AssetsDefinition]:
    return [*(_stage_asset(made, stage) for stage in made.stages), _tokenized_asset(graph, made)]


def _stage_asset(made: SourceArtifacts, stage: str) -> dg.AssetsDefinition:
    source, spec = made.source, made.stages[stage]
    description, kinds = _STAGES[stage]
    return artifact_asset(
        spec,
        lambda g: g.sources[source.name].stages[stage],
        description.format(source=f"`{source.name}`"),
        kinds=kinds,
        tags=source_tags(made.source),
        checks=sources.checks_of(made, stage),
        freshness=FRESH_WITHIN_MONTHS if stage == "raw" else None,
    )


def _tokenized_asset(graph: LabGraph, made: SourceArtifacts) -> dg.AssetsDefinition:
    name = made.source.name
    description, kinds = _STAGES["tokenized"]
    return artifact_asset(
        graph.tokenized[name],
        lambda g: g.tokenized[name],
        description.format(source=f"`{name}`"),
        kinds=kinds,
        tags=source_tags(made.source),
        checks=[tokens.TOKEN_TOTALS_AGREE],
    )
