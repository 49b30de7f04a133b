"""Group `checkpoints`: one training run per cell of the ladder, each a partition."""

import dagster as dg

from marin_assets.assets.factory import OWNERS, plain_errors
from marin_assets.guards import refuse_unrequested_training
from marin_assets.keys import asset_key, group
from marin_assets.partitions import cell_partitions
from marin_assets.resources import LabResource
from marin_core.errors import MarinError
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.tasks import TASKS


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    @dg.asset(
        key=asset_key(CHECKPOINTS),
        deps=[asset_key(graph.mixture.name), asset_key(graph.recipe.name)],
        partitions_def=cell_partitions(graph),
        description="A trained model: checkpoint, loss curve and final evaluation of one cell of the scaling ladder.",
        group_name=group(CHECKPOINTS),
        kinds={"jax"},
        owners=OWNERS,
        code_version=TASKS["train"].code_version,
    )
    def checkpoints(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            refuse_unrequested_training(context)
            spec = lab.lab.graph.cells[context.partition_key]
            record, reused = lab.lab.obtain(context, [spec], lab.lab.profile.place.suite_pools)[spec.fingerprint]
            if record.summary["status"] == "diverged":
                raise MarinError(
                    f"{spec.label} diverged at step {record.summary['steps'] - 1}: the loss is no number; the run is "
                    f"recorded and stays out of the fits; change the recipe to train it differently"
                )
            return lab.lab.result(record, reused)

    return [checkpoints]
