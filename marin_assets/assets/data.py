"""From sources to mixtures: groups `raw`, `curated`, `tokenizer`, `tokenized`, `mixture`."""

from collections.abc import Callable

import dagster as dg

from marin_assets.assets.factory import artifact_asset
from marin_core.graph import LabGraph
from marin_core.store import ArtifactSpec


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    per_source = [asset for source in graph.raw for asset in _source_assets(graph, source)]
    tokenizer = artifact_asset(
        graph.tokenizer,
        lambda g: g.tokenizer,
        "Byte-level BPE trained on a fixed sample of the curated text.",
        kinds={"tokens"},
    )
    mixture = artifact_asset(
        graph.mixture,
        lambda g: g.mixture,
        "Which tokenized sources a run reads, with nominal and effective shares.",
        kinds={"tokens"},
    )
    return [*per_source, tokenizer, mixture]


def _source_assets(graph: LabGraph, source: str) -> list[dg.AssetsDefinition]:
    def of(stage: str) -> Callable[[LabGraph], ArtifactSpec]:
        return lambda g: getattr(g, stage)[source]

    return [
        artifact_asset(
            graph.raw[source],
            of("raw"),
            f"Documents of the source `{source}` as they are, each with package, version, path and licence.",
            kinds={"parquet"},
        ),
        artifact_asset(
            graph.curated[source],
            of("curated"),
            f"Documents of `{source}`, normalized, without exact duplicates, sorted by the hash of their text.",
            kinds={"parquet"},
        ),
        artifact_asset(
            graph.tokenized[source],
            of("tokenized"),
            f"Documents of `{source}` as token shards in Levanter's cache format; train and validation are disjoint.",
            kinds={"tokens"},
        ),
    ]
