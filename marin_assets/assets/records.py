"""Group `records`: the outcomes of all runs in one table. The site that shows them is `site.py`."""

import dagster as dg

from marin_assets.assets.factory import OWNERS, plain_errors
from marin_assets.keys import asset_key, group
from marin_assets.recording import Recorder
from marin_assets.resources import LabResource
from marin_core.graph import LabGraph
from marin_core.records.outcomes import RUNS, TABLE, commit_table, table_spec

_CODE_VERSION = "1"


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    @dg.asset(
        key=asset_key(TABLE),
        description="Every outcome that was recorded until now, one row each, failures included; and first what nobody "
        "has recorded yet.",
        group_name=group(TABLE),
        kinds={"parquet"},
        owners=OWNERS,
        code_version=_CODE_VERSION,
    )
    def outcomes(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            store = lab.lab.store
            recorder = Recorder(store.root, frozenset(context.repository_def.asset_graph.get_all_asset_keys()))
            caught_up = recorder.catch_up(context.instance, held=frozenset(store.fingerprints(RUNS)))
            if caught_up:
                context.log.info(f"recorded {len(caught_up)} runs that were not recorded yet")
            spec = table_spec(store)
            reused = store.record(spec.name, spec.fingerprint) is not None
            return lab.lab.result(commit_table(store), reused)

    return [outcomes]
