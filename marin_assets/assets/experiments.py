"""Group `experiments`: of each experiment its registration, its result, and the retrospective that people read."""

import dagster as dg

from marin_assets.assets.factory import OWNERS, artifact_asset, plain_errors
from marin_assets.checks.suite import EXPERIMENT_WAS_REGISTERED_FIRST
from marin_assets.code_references import definition_metadata
from marin_assets.guards import refuse_unrequested_work
from marin_assets.keys import asset_key, group
from marin_assets.lab import Lab
from marin_assets.resources import LabResource
from marin_core.graph import LabGraph
from marin_core.graph.experiments import ExperimentArtifacts
from marin_core.store import ArtifactSpec
from marin_core.tasks import TASKS


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    return [asset for made in graph.experiments.values() for asset in _experiment_assets(graph, made)]


def register_before_runs(context: dg.AssetExecutionContext, lab: Lab) -> None:
    """Register the experiments about the suite that are not registered yet, before any of its runs begins."""
    for made in lab.graph.experiments.values():
        if made.result is not None and made.experiment.selection and lab.store.current(made.registration) is None:
            lab.report(context, made.registration, lab.made(context, made.registration), reused=False)


def _experiment_assets(graph: LabGraph, made: ExperimentArtifacts) -> list[dg.AssetsDefinition]:
    id_ = made.experiment.id
    registration = artifact_asset(
        made.registration,
        lambda g: g.experiments[id_].registration,
        f"{made.experiment.title}: the hypothesis, the metric and the forecast, with the time at which they were "
        "registered.",
        kinds={"report"},
    )
    found = [registration]
    if made.result is not None:
        found.append(_result_asset(graph, made, made.result))
    return [*found, _retrospective_asset(made)]


def _result_asset(graph: LabGraph, made: ExperimentArtifacts, result: ArtifactSpec) -> dg.AssetsDefinition:
    id_ = made.experiment.id

    def find_result(g: LabGraph) -> ArtifactSpec:
        spec = g.experiments[id_].result
        assert spec is not None
        return spec

    def train_arms(context: dg.AssetExecutionContext, lab: Lab) -> None:
        _train_missing(context, lab, lab.graph.experiments[id_])

    # Not on the partitions of the runs, of which it materializes some itself: it would look out of date for ever.
    of_arms = [graph.mixture.name] if made.experiment.arms else []
    return artifact_asset(
        result,
        find_result,
        f"{made.experiment.title}: what happened, beside what was forecast.",
        kinds={"report"},
        deps=[made.registration.name, *made.experiment.selection, *of_arms],
        prepare=train_arms if made.experiment.arms else None,
        checks=[EXPERIMENT_WAS_REGISTERED_FIRST],
    )


def _retrospective_asset(made: ExperimentArtifacts) -> dg.AssetsDefinition:
    id_ = made.experiment.id
    name = f"experiments/{id_}/retrospective"
    deps = [made.registration, *([made.result] if made.result else [])]

    @dg.asset(
        key=asset_key(name),
        deps=[asset_key(spec.name) for spec in deps],
        description=f"{made.experiment.title}: the report in Markdown, what is known and what people wrote about it.",
        group_name=group(name),
        kinds={"report"},
        owners=OWNERS,
        metadata=definition_metadata("write_retrospective"),
        code_version=TASKS["write_retrospective"].code_version,
    )
    def retrospective(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            return lab.lab.materialize(context, lab.lab.graph.retrospective(id_, lab.lab.store))

    return retrospective


def _train_missing(context: dg.AssetExecutionContext, lab: Lab, made: ExperimentArtifacts) -> None:
    """Train the runs of the arms that are not in the store; those that are cells of the ladder are seen there too."""
    wanted = [run for runs in made.runs.values() for run in runs]
    found = lab.store.all_current(wanted)
    missing = [run for run in wanted if found[run.fingerprint] is None]
    if not missing:
        return
    refuse_unrequested_work(context)
    context.log.info(f"{len(missing)} of {len(wanted)} runs are not in the store yet; training them")
    cells = {run.fingerprint for run in lab.graph.cells.values()}

    def when_built(run: ArtifactSpec) -> None:
        record = lab.store.artifact(run).record
        if record.summary["status"] == "diverged":
            context.log.warning(f"{run.label} diverged; it is recorded, and is an outcome of the experiment")
        elif run.fingerprint in cells:
            lab.report(context, run, record, reused=False)
        else:
            lab.observe(context, run)

    # Each when it has ended: what did finish is there whatever becomes of the others.
    lab.obtain(context, missing, when_built)
