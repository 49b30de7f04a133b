"""What the web UI shows of an artifact, held against the artifact."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from dagster._core.definitions.metadata.metadata_set import TableMetadataSet

from marin_assets.columns import TABLES
from marin_assets.definitions import build_definitions
from marin_assets.issues import issue_metadata
from marin_assets.keys import artifact_name, asset_key
from marin_assets.metadata import artifact_metadata
from marin_assets.tables import parts_of
from marin_core.graph import CHECKPOINTS, EVALS, LabGraph
from marin_core.profile import load_profile
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
from tests.conftest import TINY_PROFILE, LabEnvironment

GRAPH = LabGraph.of(load_profile(str(TINY_PROFILE)))
CELL = next(iter(GRAPH.cells.values()))
STAGES = [*GRAPH.sources["code"].stages.values(), GRAPH.tokenized["code"]]
OF_A_RUN = [CELL, GRAPH.evaluated(CELL)]
OF_SUITE = [GRAPH.suite, GRAPH.scaling_law, GRAPH.evals, GRAPH.downstream, GRAPH.dataset]
TABULAR = [spec for spec in (*STAGES, *OF_A_RUN, *OF_SUITE) if spec.task in TABLES]


@pytest.fixture(scope="module")
def instance(finished_lab: LabEnvironment) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(finished_lab.folder / "dagster")) as opened:
        yield opened


@pytest.fixture(scope="module")
def parents() -> Mapping[str, set[str]]:
    """The upstream assets of every asset, by name."""
    graph = build_definitions(load_profile(str(TINY_PROFILE))).resolve_asset_graph()
    return {
        artifact_name(key): {artifact_name(parent) for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }


def shown(instance: dg.DagsterInstance, spec: ArtifactSpec) -> dg.AssetMaterialization:
    """The latest materialization of an artifact, of its partition if it has one."""
    found = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key(spec.name), asset_partitions=[spec.partition] if spec.partition else None),
        limit=1,
    )
    materialization = found.records[0].asset_materialization
    assert materialization is not None
    return materialization


def table_of(lab: LabEnvironment, spec: ArtifactSpec) -> pl.DataFrame:
    folder = lab.store / spec.name / spec.fingerprint
    record = Store(str(lab.store)).artifact(spec).record
    return pl.concat([pl.read_parquet(folder / part) for part in parts_of(record, TABLES[spec.task].path)])


@pytest.mark.parametrize("spec", TABULAR, ids=lambda spec: spec.name)
def test_a_table_is_shown_with_its_columns_and_rows(
    spec: ArtifactSpec, finished_lab: LabEnvironment, instance: dg.DagsterInstance
) -> None:
    table, told = table_of(finished_lab, spec), TableMetadataSet.extract(shown(instance, spec).metadata)
    assert told.column_schema is not None
    assert [column.name for column in told.column_schema.columns] == table.columns
    assert [column.name for column in told.column_schema.columns if not column.description] == []
    rows = told.partition_row_count if spec.partition else told.row_count
    assert rows == len(table)


@pytest.mark.parametrize("spec", TABULAR, ids=lambda spec: spec.name)
def test_columns_are_made_of_columns_that_exist(
    spec: ArtifactSpec, instance: dg.DagsterInstance, parents: Mapping[str, set[str]]
) -> None:
    told = TableMetadataSet.extract(shown(instance, spec).metadata)
    deps = told.column_lineage.deps_by_column if told.column_lineage else {}
    assert told.column_schema is not None
    assert set(deps) <= {column.name for column in told.column_schema.columns}
    for dep in {dep for found in deps.values() for dep in found}:
        assert artifact_name(dep.asset_key) in parents[spec.name]
        source = instance.get_latest_materialization_event(dep.asset_key)
        assert source is not None
        assert source.asset_materialization is not None
        schema = TableMetadataSet.extract(source.asset_materialization.metadata).column_schema
        assert schema is not None
        assert dep.column_name in {column.name for column in schema.columns}


def test_a_text_column_leads_from_the_shards_to_the_normalized_documents(instance: dg.DagsterInstance) -> None:
    def origins(spec: ArtifactSpec, column: str) -> set[tuple[str, str]]:
        lineage = TableMetadataSet.extract(shown(instance, spec).metadata).column_lineage
        assert lineage is not None
        return {(artifact_name(dep.asset_key), dep.column_name) for dep in lineage.deps_by_column[column]}

    assert origins(GRAPH.tokenized["code"], "tokens") == {("curated/code", "text")}
    assert origins(GRAPH.curated["code"], "text") == {("normalized/code", "text")}
    assert ("quality/code", "keep") in origins(GRAPH.curated["code"], "id")
    assert origins(GRAPH.suite, "train_loss") == {(CHECKPOINTS, "loss")}
    assert origins(GRAPH.evals, "value") == {(EVALS, "value")}


@pytest.mark.parametrize("spec", [GRAPH.curated["code"], GRAPH.tokenized["code"], CELL], ids=lambda spec: spec.name)
def test_documents_and_tokens_are_numbers_to_plot(
    spec: ArtifactSpec, finished_lab: LabEnvironment, instance: dg.DagsterInstance
) -> None:
    summary = Store(str(finished_lab.store)).artifact(spec).record.summary
    told = {name: value.value for name, value in shown(instance, spec).metadata.items()}
    if "train_tokens" in summary:
        assert told["tokens"] == summary["train_tokens"] + summary["validation_tokens"]
        assert told["documents"] == summary["train_documents"] + summary["validation_documents"]
    else:
        assert {name: told[name] for name in ("tokens", "documents") if name in summary} == {
            name: summary[name] for name in ("tokens", "documents") if name in summary
        }
    numbers = [told[name] for name in ("tokens", "documents") if name in told]
    assert numbers
    assert all(type(number) is int for number in numbers)


def test_no_materialization_but_of_figures_is_large(instance: dg.DagsterInstance) -> None:
    specs = [*STAGES, *OF_A_RUN, *OF_SUITE]
    sizes = {spec.name: len(dg.serialize_value(shown(instance, spec))) for spec in specs}
    assert max(sizes.values()) < 25_000, sizes


def test_a_materialization_leads_to_its_artifact_and_to_its_pages(finished_lab: LabEnvironment) -> None:
    record = Store(str(finished_lab.store)).artifact(CELL).record
    folder = finished_lab.store / record.name / record.fingerprint
    pages = {"wandb_url": "https://wandb.ai/lab/runs/1", "url": "https://huggingface.co/lab/model"}
    told = artifact_metadata(with_summary(record, **pages), str(folder), reused=False)
    assert Path(str(told["path"].value)) == folder
    for name, page in pages.items():
        assert isinstance(told[name], dg.UrlMetadataValue)
        assert told[name].value == page
    in_bucket = artifact_metadata(record, "gs://bucket/lab", reused=False)
    assert isinstance(in_bucket["path"], dg.UrlMetadataValue)


def with_summary(record: ArtifactRecord, **changes: object) -> ArtifactRecord:
    return dataclasses.replace(record, summary={**record.summary, **changes})


def test_an_artifact_leads_to_the_issues_of_its_experiments(finished_lab: LabEnvironment) -> None:
    issue = "https://example.org/issues/7"
    declared = tuple(
        dataclasses.replace(one, issue=issue if one.id == "laptop_ladder" else None) for one in GRAPH.declared
    )
    graph = dataclasses.replace(GRAPH, declared=declared)
    store = Store(str(finished_lab.store))
    links = {
        spec.name: issue_metadata(graph, store.artifact(spec).record)
        for spec in (graph.suite, graph.verdict, graph.tokenizer)
    }
    expected = {"issue_laptop_ladder": dg.MetadataValue.url(issue)}
    assert links == {graph.suite.name: expected, graph.verdict.name: expected, graph.tokenizer.name: {}}
