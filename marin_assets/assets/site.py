"""Group `records`: the public record, static pages of all that the store holds."""

import dagster as dg

from marin_assets.assets.factory import OWNERS, plain_errors
from marin_assets.code_references import definition_metadata
from marin_assets.freshness import FRESH_WITHIN_MONTHS
from marin_assets.keys import asset_key, group
from marin_assets.lab import Lab
from marin_assets.resources import LabResource
from marin_core.graph import LabGraph
from marin_core.records.outcomes import TABLE
from marin_core.tasks import TASKS
from marin_core.tasks.site import SITE, StoreChanged, site_spec

# A lab at work commits something every few seconds; what is planned is built at once.
_ATTEMPTS = 3
_FIRST_PAGE = "index.html"


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    @dg.asset(
        key=asset_key(SITE),
        # Of all else it shows what is there: who wants to see the record must not have to train what is missing.
        deps=[asset_key(TABLE)],
        description="The public record as static pages, of all that the store holds at the moment: experiments with "
        "their verdicts, every artifact with its provenance, every run that failed with its cause.",
        group_name=group(SITE),
        kinds={"report"},
        owners=OWNERS,
        metadata=definition_metadata("build_site"),
        code_version=TASKS["build_site"].code_version,
        freshness_policy=FRESH_WITHIN_MONTHS,
    )
    def site(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            result, url = _materialized(context, lab.lab)
        page = f"{url}/{_FIRST_PAGE}"
        shown = dg.MetadataValue.url(page) if "://" in page else dg.MetadataValue.path(page)
        return result._replace(metadata={**(result.metadata or {}), "open": shown})

    return [site]


def _materialized(context: dg.AssetExecutionContext, lab: Lab) -> tuple[dg.MaterializeResult, str]:
    """The site, planned anew if the store changed in a way that the plan cannot follow."""
    for attempt in range(_ATTEMPTS):
        spec = site_spec(lab.store)
        try:
            return lab.materialize(context, spec), lab.store.url(spec)
        except StoreChanged as error:
            if attempt == _ATTEMPTS - 1:
                raise
            context.log.info(str(error))
    raise AssertionError("unreachable")
