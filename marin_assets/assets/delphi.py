"""Group `delphi`: the scaling suite from recipe to report. Unpartitioned, so that `--select 'delphi/*'` needs no
partition."""

from collections.abc import Mapping

import dagster as dg

from marin_assets.assets.experiments import register_before_runs
from marin_assets.assets.factory import artifact_asset, inputs_of
from marin_assets.assets.models import obtain_evaluations
from marin_assets.checks import models, runs
from marin_assets.checks import suite as results
from marin_assets.code_versions import run_for_all_partitions
from marin_assets.guards import refuse_unrequested_work
from marin_assets.keys import asset_key
from marin_assets.lab import Lab
from marin_assets.provenance import current_versions, shown_versions
from marin_assets.vocabulary import suite_tags
from marin_core.graph import CHECKPOINTS, EVALS, LabGraph
from marin_core.store import ArtifactRecord, ArtifactSpec


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    suite, recipe, mixture = graph.suite.name, graph.recipe.name, graph.mixture.name
    made = [
        artifact_asset(
            graph.recipe,
            lambda g: g.recipe,
            "The ladder: every candidate run of every fit budget, with model shape, batch, steps and rates.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.suite,
            lambda g: g.suite,
            "Trains every cell of the ladder that is not in the store, as many at once as the place allows; each "
            f"becomes a materialization of its partition of `{CHECKPOINTS}`. Its table has one row per run.",
            kinds={"jax", "parquet"},
            # Before the cells, whatever of them is there.
            deps=[recipe, mixture],
            fills={CHECKPOINTS: list(graph.cells)},
            prepare=train_missing_cells,
            checks=[runs.RUNS_ARE_FINITE, runs.RUNS_ARE_COMPLETE],
        ),
        artifact_asset(
            graph.isoflop,
            lambda g: g.isoflop,
            "Per budget, a robust parabola of loss in log tokens; budgets without a usable minimum are flagged.",
            kinds={"report"},
            checks=[results.MINIMA_ARE_INSIDE_THE_GRID],
        ),
        artifact_asset(
            graph.scaling_law,
            lambda g: g.scaling_law,
            "Token law D* = A·C^a and loss law L = E + A·C^-α through the minima, with bootstrap intervals.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.forecast,
            lambda g: g.forecast,
            "Loss predicted for the held-out budgets, with intervals and time stamp, registered before the runs.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.heldout,
            lambda g: g.heldout,
            "The models that the token law chooses for the held-out budgets, trained after the forecast; each becomes "
            f"a materialization of its partition of `{CHECKPOINTS}`.",
            kinds={"jax", "eval"},
            fills={CHECKPOINTS: list(graph.heldout_partitions)},
            prepare=train_heldout,
            checks=[runs.HELD_OUT_RUNS_ARE_COMPLETE],
        ),
        artifact_asset(
            graph.verdict,
            lambda g: g.verdict,
            "Predicted and actual loss of the held-out runs, the error in percent, inside the interval or not.",
            kinds={"report"},
            checks=[results.FORECAST_CAME_FIRST],
        ),
        artifact_asset(
            graph.evals,
            lambda g: g.evals,
            "Evaluates every run of the ladder and every held-out run that is not evaluated yet; each becomes a "
            f"materialization of its partition of `{EVALS}`. Its table has one row per metric of a run.",
            kinds={"eval", "parquet"},
            # And on what the evaluations are made of, which are no assets of their own.
            deps=[suite, graph.heldout.name, *inputs_of(graph.evaluated(run_for_all_partitions(graph)))],
            fills={EVALS: [*graph.cells, *graph.heldout_partitions]},
            prepare=evaluate_runs,
            checks=[models.EVALUATIONS_SUCCEEDED],
        ),
        artifact_asset(
            graph.downstream,
            lambda g: g.downstream,
            "Task scores forecast in two steps: a soft metric as a power law of compute, the score as a sigmoid of it.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.figures,
            lambda g: g.figures,
            "IsoFLOP curves, the law with the held-out points, and task scores against compute; PNG and SVG.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.dataset,
            lambda g: g.dataset,
            "The tables behind the figures, one each, ready to plot; every row with the W&B page of its run.",
            kinds={"parquet"},
        ),
        artifact_asset(
            graph.report,
            lambda g: g.report,
            "The suite in Markdown, every number from the artifacts: laws, sensitivity, forecasts and what happened.",
            kinds={"report"},
        ),
    ]
    tags = suite_tags(graph)
    return [asset.map_asset_specs(lambda spec: spec.merge_attributes(tags=tags)) for asset in made]


def train_missing_cells(context: dg.AssetExecutionContext, lab: Lab) -> None:
    """Register what is believed of the suite; then train what it lacks, and show every run as a materialization of its
    partition."""
    register_before_runs(context, lab)
    _train(context, lab, lab.graph.cells)


def train_heldout(context: dg.AssetExecutionContext, lab: Lab) -> None:
    """Train the models that the committed forecast names, and show each as a materialization of its partition."""
    _train(context, lab, lab.heldout_runs())


def evaluate_runs(context: dg.AssetExecutionContext, lab: Lab) -> None:
    """Evaluate what is not evaluated yet, and show what is known of each run as a materialization of its partition."""
    evaluated = [lab.graph.evaluated(run) for run in (*lab.graph.cells.values(), *lab.heldout_runs().values())]
    before = lab.store.all_current(evaluated)
    obtain_evaluations(context, lab, evaluated)
    shown = shown_versions(context, asset_key(EVALS))
    for spec in evaluated:
        record = lab.made(context, spec)
        # Another one where an evaluation was run again.
        reused = record == before[spec.fingerprint]
        if not reused or shown.get(str(spec.partition)) != current_versions(context, asset_key(EVALS), record):
            lab.report(context, spec, record, reused=reused)


def _train(context: dg.AssetExecutionContext, lab: Lab, runs: Mapping[str, ArtifactSpec]) -> None:
    shown = shown_versions(context, asset_key(CHECKPOINTS))
    committed = lab.store.all_current(list(runs.values()))
    missing = [spec for spec in runs.values() if committed[spec.fingerprint] is None]
    if missing:
        refuse_unrequested_work(context)
        context.log.info(f"{len(missing)} of {len(runs)} runs are not in the store yet; training them")

    def show(spec: ArtifactSpec, record: ArtifactRecord, *, reused: bool) -> None:
        if record.summary["status"] == "diverged":
            context.log.warning(f"{spec.label} diverged; it is recorded and stays out of the fits")
        elif not reused or shown.get(str(spec.partition)) != current_versions(context, asset_key(CHECKPOINTS), record):
            lab.report(context, spec, record, reused=reused)

    def show_built(spec: ArtifactSpec) -> None:
        show(spec, lab.store.artifact(spec).record, reused=False)

    for spec in runs.values():
        if record := committed[spec.fingerprint]:
            show(spec, record, reused=True)
    # Each when it has ended: what did finish is there whatever becomes of the others, and is seen to be there.
    lab.obtain(context, missing, show_built)
