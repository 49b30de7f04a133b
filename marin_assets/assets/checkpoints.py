"""Group `checkpoints`: one training run per partition, the cells of the ladder and the held-out runs; and `plan`, where
a run that belongs to no ladder is trained from its plan."""

import dagster as dg

from marin_assets.assets.factory import OWNERS, plain_errors, run_asset
from marin_assets.checks import runs
from marin_assets.code_references import definition_metadata
from marin_assets.code_versions import run_of_any_plan
from marin_assets.guards import refuse_unrequested_work
from marin_assets.job_outcomes import RunDiverged, divergence
from marin_assets.keys import asset_key, group
from marin_assets.lab import Lab
from marin_assets.resources import LabResource
from marin_core.graph import CHECKPOINTS, TRAINED_PLAN, LabGraph
from marin_core.plan_file import read_plan
from marin_core.store import ArtifactRecord, ArtifactSpec


class PlanConfig(dg.Config):
    """`plan` is the path of a TrainPlan in JSON, as `marin recipe BUDGET --optimal --out` writes it."""

    plan: str = ""


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    checkpoints = run_asset(
        CHECKPOINTS,
        lambda g, run: run,
        "A trained model: checkpoint, loss curve and final evaluation of one run, a cell of the scaling ladder or a "
        "held-out run.",
        graph,
        kinds={"jax"},
        prepare=train_partition,
        checks=[runs.LOSS_IS_FINITE, runs.FINAL_STEP_IS_REACHED],
    )

    @dg.asset(
        key=asset_key(TRAINED_PLAN),
        deps=[asset_key(graph.mixture.name)],
        description="Trains the plan in the file that its configuration names, on the profile's mixture. The artifact "
        f"is one of `{CHECKPOINTS}`: a plan that was trained before is reused.",
        group_name=group(TRAINED_PLAN),
        kinds={"jax"},
        owners=OWNERS,
        metadata=definition_metadata("train"),
        code_version=run_of_any_plan(graph).fingerprint,
    )
    def checkpoint_of_plan(
        context: dg.AssetExecutionContext, config: PlanConfig, lab: LabResource
    ) -> dg.MaterializeResult:
        with plain_errors():
            run = lab.lab.graph.run_of_plan(read_plan(config.plan))
            reused = lab.lab.store.current(run) is not None
            return lab.lab.result(train(context, lab.lab, run), reused)

    return [checkpoints, checkpoint_of_plan]


def train_partition(context: dg.AssetExecutionContext, lab: Lab, run: ArtifactSpec) -> None:
    """Train the run of a partition if it is not in the store yet.

    Raises:
        RunDiverged: it is recorded all the same, and its check says so.
    """
    try:
        train(context, lab, run)
    except RunDiverged:
        context.log_event(runs.LOSS_IS_FINITE.evaluation(lab, run))  # type: ignore[arg-type]
        raise


def train(context: dg.AssetExecutionContext, lab: Lab, run: ArtifactSpec) -> ArtifactRecord:
    """The record of a run, trained if it is not in the store yet.

    Raises:
        RunDiverged: it is recorded all the same.
    """
    refuse_unrequested_work(context)
    record, _ = lab.obtain(context, [run])[run.fingerprint]
    if record.summary["status"] == "diverged":
        raise RunDiverged(divergence(run, record))
    return record
