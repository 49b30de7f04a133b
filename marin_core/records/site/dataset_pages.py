"""The page of each source of text: where it is from, what became of its documents stage by stage, and a few of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.records.difference import leaves
from marin_core.records.site import paths
from marin_core.records.site.content import SiteContent
from marin_core.records.site.reading import Sample, samples
from marin_core.records.site.render import Pages, SiteFile
from marin_core.store import ArtifactRecord, Store

RAW = "raw/"
STAGES = ("raw", "normalized", "quality", "near_duplicates", "contamination", "curated", "tokenized")
_HOLD_DOCUMENTS = ("curated", "normalized")


@dataclass(frozen=True)
class StageRow:
    """The newest artifact of a stage and what it kept; None where the stage does not count that."""

    stage: str
    record: ArtifactRecord
    documents: int | None
    bytes: int | None
    tokens: int | None


@dataclass(frozen=True)
class SourceView:
    """A source with its stages in order. `removed` is (stage and reason, documents), most first."""

    name: str
    origin: Sequence[tuple[str, Any]]
    licence: str | None
    licences: Sequence[str]
    stages: Sequence[StageRow]
    removed: Sequence[tuple[str, int]]

    @property
    def most_documents(self) -> int:
        return max((row.documents or 0 for row in self.stages), default=0)

    @property
    def kept(self) -> StageRow:
        """The last stage that counts documents."""
        return next((row for row in reversed(self.stages) if row.documents is not None), self.stages[-1])


def dataset_pages(pages: Pages, store: Store) -> Iterator[SiteFile]:
    views = [source_view(pages.content, name) for name in source_names(pages.content)]
    yield pages.page("datasets.html.jinja", paths.DATASETS, views=views)
    for view in views:
        page = paths.dataset_page(view.name)
        table = page.removesuffix(".html") + ".csv"
        yield SiteFile(table, _table(view))
        found = _samples(store, view)
        yield pages.page("dataset.html.jinja", page, view=view, table=table, samples=found)


def source_names(content: SiteContent) -> list[str]:
    return [name.removeprefix(RAW) for name in content.by_name if name.startswith(RAW)]


def source_view(content: SiteContent, name: str) -> SourceView:
    newest = {stage: content.newest.get((f"{stage}/{name}", None)) for stage in STAGES}
    stages = [_row(stage, record) for stage, record in newest.items() if record is not None]
    raw, normalized = newest["raw"], newest["normalized"]
    licence = normalized.payload["config"].get("licence") if normalized else None
    licences = next((row.record.summary["licences"] for row in stages if "licences" in row.record.summary), ())
    return SourceView(
        name=name,
        origin=list(leaves(raw.payload["config"].get("origin", {}), empty=True)) if raw else [],
        licence=licence,
        licences=licences,
        stages=stages,
        removed=_removed(newest),
    )


def _row(stage: str, record: ArtifactRecord) -> StageRow:
    told = record.summary
    if stage == "tokenized":
        return StageRow(stage, record, *(_both(told, unit) for unit in ("documents", "bytes", "tokens")))
    return StageRow(stage, record, told.get("documents"), told.get("bytes"), None)


def _both(summary: Mapping[str, Any], unit: str) -> int | None:
    """For training and for validation."""
    parts = [summary.get(f"{split}_{unit}") for split in ("train", "validation")]
    return None if all(part is None for part in parts) else sum(part or 0 for part in parts)


def _removed(newest: Mapping[str, ArtifactRecord | None]) -> list[tuple[str, int]]:
    curated, normalized = newest["curated"], newest["normalized"]
    counts: dict[str, int] = dict(curated.summary.get("removed", {})) if curated else {}
    told = normalized.summary if normalized else {}
    counts |= {f"normalized/{kind}": n for kind, n in told.get("rejected", {}).items()}
    counts |= {f"normalized/{kind}": told[kind] for kind in ("empty", "exact_duplicates") if told.get(kind)}
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def _samples(store: Store, view: SourceView) -> list[Sample]:
    """Of what is trained on, if that is there."""
    held = {row.stage: row.record for row in view.stages}
    record = next((held[stage] for stage in _HOLD_DOCUMENTS if stage in held), None)
    return samples(store, record) if record else []


def _table(view: SourceView) -> bytes:
    rows = [("stage", "documents", "bytes", "tokens")]
    rows += [(row.stage, *(_text(n) for n in (row.documents, row.bytes, row.tokens))) for row in view.stages]
    return "".join(",".join(row) + "\n" for row in rows).encode()


def _text(count: int | None) -> str:
    return "" if count is None else str(count)
