"""The one place that refuses work: on accelerators and hubs what nobody asked for, and work on what a stage has all but
emptied."""

import dagster as dg

from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.graph.sources import SourceArtifacts
from marin_core.store import ArtifactSpec, Store

# Stages that remove documents; their summaries say how many of them stayed.
STAGES_WITH_RETENTION = ("normalized", "quality", "near_duplicates", "contamination", "curated")


def refuse_unrequested_work(context: dg.AssetExecutionContext, what: str = "trains models") -> None:
    """Fail unless this run names its assets; `what` says what the asset would do.

    Dagster takes an empty selection for "everything" (for instance `--select 'key:nope/*'`). Such a run has no asset
    selection; every explicit one, from the command line, the UI or GraphQL, has.

    Raises:
        dagster.Failure: the run selects no assets explicitly.
    """
    if not context.run.asset_selection:
        raise dg.Failure(
            f"{context.asset_key.to_user_string()} {what}, and this run names no assets; "
            f"select what is wanted, for instance: dagster asset materialize --select 'delphi/*'",
            allow_retries=False,
        )


def refuse_emptied_inputs(graph: LabGraph, store: Store, spec: ArtifactSpec) -> None:
    """Fail if `spec` would be made of a stage that kept too little of its source.

    The stage's own check blocks only the run that built it; a later run finds the stage committed.

    Raises:
        MarinError: an input kept less than its source's `min_retention`.
    """
    for upstream in spec.inputs.values():
        stage, _, source = upstream.name.partition("/")
        if stage in STAGES_WITH_RETENTION and source in graph.sources:
            made = graph.sources[source]
            kept = retention(made, stage, store)
            if kept < made.source.curation.min_retention:
                raise MarinError(emptied(made, stage, kept))


def retention(made: SourceArtifacts, stage: str, store: Store) -> float:
    """The share of its documents that a committed stage kept."""
    return float(store.artifact(made.stages[stage]).record.summary["retention"])


def emptied(made: SourceArtifacts, stage: str, kept: float) -> str:
    """What to say of a stage that kept too little."""
    return (
        f"{stage}/{made.source.name} kept {kept:.1%} of its documents, at least "
        f"{made.source.curation.min_retention:.1%} must stay; look at what it removed, and if that is right lower the "
        f"source's min_retention in the profile"
    )
