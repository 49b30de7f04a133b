"""What Dagster compares to say that an asset is stale: the code version and the versions of the inputs, as tags of its
materialization. It writes them for the asset of a step itself; here are those of everything else that a step makes."""

from collections.abc import Iterable
from itertools import batched

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph, BaseAssetNode
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from marin_assets.metadata import data_version
from marin_core.store import ArtifactRecord

# A data version and a code version.
Versions = tuple[str | None, str | None]
_EVENTS_AT_ONCE = 500


def provenance_tags(
    context: dg.AssetExecutionContext, key: dg.AssetKey, partition: str | None, record: ArtifactRecord
) -> dict[str, str]:
    """The tags of a materialization of another asset than the step's own."""
    tags = {DATA_VERSION_TAG: data_version(record).value, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}
    graph = _asset_graph(context)
    if not graph.has(key):
        return tags
    node = graph.get(key)
    tags[CODE_VERSION_TAG] = str(node.code_version)
    for upstream in node.parent_keys:
        version_of_input, pointer = _latest(context.instance, graph.get(upstream), partition)
        tags[get_input_data_version_tag(upstream)] = version_of_input
        tags[get_input_event_pointer_tag(upstream)] = pointer
    return tags


def shown_versions(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dict[str, Versions]:
    """(data version, code version) of the latest materialization of every partition that has one."""
    storage = context.instance.event_log_storage
    latest = list(storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION).values())
    found: dict[str, Versions] = {}
    for ids in batched(latest, _EVENTS_AT_ONCE):
        events = storage.fetch_materializations(dg.AssetRecordsFilter(key, storage_ids=ids), limit=len(ids))
        for event in events.records:
            tags = event.event_log_entry.tags or {}
            found[str(event.partition_key)] = (tags.get(DATA_VERSION_TAG), tags.get(CODE_VERSION_TAG))
    return found


def current_versions(context: dg.AssetExecutionContext, key: dg.AssetKey, record: ArtifactRecord) -> Versions:
    """What `shown_versions` says of a partition whose artifact is shown as it is."""
    graph = _asset_graph(context)
    return data_version(record).value, str(graph.get(key).code_version) if graph.has(key) else None


def read_again(context: dg.AssetExecutionContext, keys: Iterable[dg.AssetKey]) -> None:
    """Take inputs of the step as they are now. Dagster noted their versions when the step began, and the step has
    materialized partitions of them since: it would look out of date for ever."""
    step = context.get_step_execution_context()
    for key in keys:
        step.wipe_input_asset_version_info(key)


def _latest(instance: dg.DagsterInstance, upstream: BaseAssetNode, partition: str | None) -> tuple[str, str]:
    of_partition = partition if upstream.is_partitioned else None
    record = instance.get_latest_data_version_record(upstream.key, upstream.is_external, of_partition)
    if record is None:
        return DEFAULT_DATA_VERSION.value, NULL_EVENT_POINTER
    version = extract_data_version_from_entry(record.event_log_entry) or DEFAULT_DATA_VERSION
    return version.value, str(record.storage_id)


def _asset_graph(context: dg.AssetExecutionContext) -> BaseAssetGraph:
    return context.repository_def.asset_graph
