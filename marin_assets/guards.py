"""The one place that refuses accelerator work nobody asked for."""

import dagster as dg


def refuse_unrequested_training(context: dg.AssetExecutionContext) -> None:
    """Fail unless this run names its assets.

    Dagster takes an empty selection for "everything" (for instance `--select 'key:nope/*'`). Such a run has no asset
    selection; every explicit one, from the command line, the UI or GraphQL, has.

    Raises:
        dagster.Failure: the run selects no assets explicitly.
    """
    if not context.run.asset_selection:
        raise dg.Failure(
            f"{context.asset_key.to_user_string()} trains models, and this run names no assets; "
            f"select what to train, for instance: dagster asset materialize --select 'delphi/*'",
            allow_retries=False,
        )
