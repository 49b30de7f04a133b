"""Group `delphi`: the scaling suite from recipe to verdict. Unpartitioned, so that `--select 'delphi/*'` needs no
partition."""

import dagster as dg

from marin_assets import checks
from marin_assets.assets.factory import artifact_asset
from marin_assets.guards import refuse_unrequested_training
from marin_assets.keys import asset_key
from marin_assets.lab import Lab
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.store import ArtifactRecord, ArtifactSpec


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    suite, recipe, mixture = graph.suite.name, graph.recipe.name, graph.mixture.name
    return [
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
            # Not on the partitions that it materializes itself: it would look out of date for ever.
            deps=[recipe, mixture],
            prepare=train_missing_cells,
            check_specs=[checks.runs_are_finite(suite)],
            checks=checks.check_suite,
        ),
        artifact_asset(
            graph.isoflop,
            lambda g: g.isoflop,
            "Per budget, a robust parabola of loss in log tokens; budgets without a usable minimum are flagged.",
            kinds={"report"},
            deps=[suite, CHECKPOINTS],
            check_specs=[checks.minima_are_inside_the_grid(graph.isoflop.name)],
            checks=checks.check_isoflop,
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
            "Loss predicted for the held-out budget, with interval and time stamp, registered before the run.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.heldout,
            lambda g: g.heldout,
            "The model that the token law chooses for the held-out budget, trained after the forecast.",
            kinds={"jax", "eval"},
            prepare=train_heldout,
        ),
        artifact_asset(
            graph.verdict,
            lambda g: g.verdict,
            "Predicted and actual loss of the held-out run, the error in percent, inside the interval or not.",
            kinds={"report"},
            check_specs=[checks.forecast_came_first(graph.verdict.name)],
            checks=checks.check_verdict,
        ),
        artifact_asset(
            graph.figures,
            lambda g: g.figures,
            "IsoFLOP curves, and the law with the held-out point; PNG and SVG.",
            kinds={"report"},
        ),
        artifact_asset(
            graph.dataset,
            lambda g: g.dataset,
            "One row per run, held-out included, ready to plot.",
            kinds={"parquet"},
        ),
    ]


def train_missing_cells(context: dg.AssetExecutionContext, lab: Lab) -> None:
    """Train what the suite lacks, and show every run as a materialization of its partition."""
    cells = lab.graph.cells
    shown = context.instance.get_materialized_partitions(asset_key(CHECKPOINTS))
    committed = {key: lab.store.current(spec) for key, spec in cells.items()}
    missing = [spec for key, spec in cells.items() if committed[key] is None]
    if missing:
        refuse_unrequested_training(context)
        context.log.info(f"{len(missing)} of {len(cells)} runs are not in the store yet; training them")

    def show(spec: ArtifactSpec, record: ArtifactRecord, *, reused: bool) -> None:
        if record.summary["status"] == "diverged":
            context.log.warning(f"{spec.label} diverged; it is recorded and stays out of the fits")
        elif not reused or spec.partition not in shown:
            lab.report_cell(context, str(spec.partition), record, reused=reused)

    def show_built(spec: ArtifactSpec) -> None:
        show(spec, lab.store.artifact(spec).record, reused=False)

    for key, record in committed.items():
        if record is not None:
            show(cells[key], record, reused=True)
    # Each when it has ended: what did finish is there whatever becomes of the others, and is seen to be there.
    lab.obtain(context, missing, lab.profile.place.suite_pools, show_built)


def train_heldout(context: dg.AssetExecutionContext, lab: Lab) -> None:
    """Train the model that the committed forecast names."""
    run = lab.graph.heldout_run(lab.store)
    if lab.store.current(run) is None:
        refuse_unrequested_training(context)
    lab.obtain(context, [run], lab.profile.place.heldout_pools)
