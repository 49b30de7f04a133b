"""Near-duplicates within a source: documents that are contained in a longer one are marked for removal.

MinHash bands say which documents may be alike, connected components of these candidates are clusters, and within a
cluster containment is measured before a document is removed. The phases are in `candidates.py` and
`verdicts.py`.
"""

from collections.abc import Callable, Sequence

from marin_core.data.near_duplicates import candidates, verdicts
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.near_duplicates.plan import Plan
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, Phase, Stage, total
from marin_core.store import Artifact, Workspace


def near_duplicates_stage(
    source: Source,
    normalized: Artifact,
    quality: Artifact,
    config: MinHashConfig,
    workspace: Workspace,
    log: Callable[[str], None],
) -> Stage:
    """Write `duplicates/part-….parquet`: id, cluster, duplicate, containment of every document that quality kept.

    cluster: id of the cluster's longest document (of equally long ones the lowest), null for a document alone.
    duplicate: to be removed, since a longer document of the cluster that stays contains it. containment: the largest
    that was measured, null where none was. Of an exempt source every document stays.

    Raises:
        MarinError: the inputs do not belong together, or there are no documents.
    """
    plan = Plan(normalized, quality, config, workspace)
    parts = len(plan.parts)
    if source.curation.near_duplicates:
        phases = (
            Phase("sign", parts, lambda part: candidates.sign(plan, part)),
            Phase("link", plan.partitions, lambda partition: candidates.link(plan, partition)),
            Phase("cluster", 1, lambda item: candidates.cluster(plan)),
            Phase("gather", parts, lambda part: verdicts.gather(plan, part)),
            Phase("verify", plan.groups, lambda group: verdicts.verify(plan, group)),
            Phase("write", parts, lambda part: verdicts.write(plan, part)),
        )
    else:
        phases = (Phase("write", parts, lambda part: verdicts.write_exempt(plan, part)),)

    def finish(counts: Sequence[Sequence[Counts]]) -> Counts:
        summary = _summary(counts)
        log(f"near_duplicates/{source.name}: {summary['documents']:,} of {summary['documents_in']:,} documents kept")
        return summary

    return Stage(phases, finish)


def _summary(counts: Sequence[Sequence[Counts]]) -> Counts:
    """Counts added up; of `largest_…` the largest."""
    items = [item for phase in counts for item in phase]
    summary = total([{key: value for key, value in item.items() if not key.startswith("largest_")} for item in items])
    for item in items:
        for key in (key for key in item if key.startswith("largest_")):
            summary[key] = max(summary.get(key, 0), item[key])
    summary["duplicates"] = summary["documents_in"] - summary["documents"]
    summary["retention"] = round(summary["documents"] / max(1, summary["documents_in"]), 6)
    return summary
