"""The last stage of curation: the documents that every stage before kept, and the list of those that one removed.

Files: `documents/part-….parquet` with the columns of the normalized documents, sorted by id within and across, and
`removed/part-….parquet` of the same ranges of ids: `id`, `stage`, `reason`, and in `detail` what a document duplicates
or contains.
"""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from marin_core.data.attributes import REMOVED, removed_documents
from marin_core.data.documents import (
    PartWriter,
    document_parts,
    part_schema,
    read_part,
    retention_summary,
    text_batches,
    write_part,
)
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, Phase, Stage
from marin_core.errors import MarinError
from marin_core.store import Artifact, Workspace

SHARD_BYTES = 256 << 20
_STAGES = ("quality", "near_duplicates", "contamination")
_LISTED_LICENCES = 50


def curate_stage(
    source: Source,
    normalized: Artifact,
    quality: Artifact,
    near_duplicates: Artifact,
    contamination: Artifact,
    workspace: Workspace,
    log: Callable[[str], None],
    shard_bytes: int = SHARD_BYTES,
) -> Stage:
    """Join the documents with what each stage says of them; an item per shard of about `shard_bytes` of text.

    A shard is made of neighbouring normalized parts. Ids are uniform hashes, so parts of equal size keep about as much.

    Raises:
        MarinError: a stage has no row for a document that it got, the parts are not sorted, or, from `finish`, no
            document is left.
    """
    parts = document_parts(normalized)
    shards = max(1, min(len(parts), round(contamination.record.summary["bytes"] / shard_bytes)))
    bounds = [len(parts) * shard // shards for shard in range(shards + 1)]

    def write_shard(item: int) -> Counts:
        mine = parts[bounds[item] : bounds[item + 1]]
        name = f"part-{item:05d}-of-{shards:05d}.parquet"
        shard = _Shard(part_schema(normalized, mine[0]))
        with PartWriter(workspace, f"documents/{name}", shard.schema) as writer:
            for part in mine:
                ids = read_part(normalized, part, ("id",))["id"]
                removed = removed_documents(part, ids, quality, near_duplicates, contamination)
                shard.add_removed(part, ids, removed)
                gone = removed["id"].implode()
                for batch in text_batches(normalized, part, columns=list(shard.schema)):
                    writer.write(shard.counted(batch, batch.filter(~pl.col("id").is_in(gone))))
        removed = pl.concat([REMOVED.to_frame(), *shard.removed])
        write_part(workspace, f"removed/{name}", removed)
        return shard.counts(removed)

    def finish(counts: Sequence[Sequence[Counts]]) -> Counts:
        summary = _summary(counts[0])
        if not summary["documents"]:
            raise MarinError(
                f"source {source.name!r} has no documents left after curation ({summary['documents_in']:,} came in; "
                f"removed: {summary['removed_by_stage']}); change its curation in the source's declaration"
            )
        log(f"curated/{source.name}: {summary['documents']:,} of {summary['documents_in']:,} documents kept")
        return summary

    return Stage((Phase("write", shards, write_shard),), finish)


class _Shard:
    """What has been read and kept of a shard so far."""

    def __init__(self, schema: pl.Schema):
        self.schema = schema
        self.removed: list[pl.DataFrame] = []
        self._licences: set[str] = set()
        self._sizes = {"documents_in": 0, "bytes_in": 0, "documents": 0, "bytes": 0}
        self._last = ""

    def add_removed(self, part: str, ids: pl.Series, removed: pl.DataFrame) -> None:
        if len(ids) and not (ids.is_sorted() and ids[0] > self._last):
            raise MarinError(f"normalized part {part} is not sorted by id, as was expected; normalize the source again")
        self._last = ids[-1] if len(ids) else self._last
        self.removed.append(removed)

    def counted(self, batch: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
        for frame, suffix in ((batch, "_in"), (kept, "")):
            self._sizes[f"documents{suffix}"] += len(frame)
            self._sizes[f"bytes{suffix}"] += int(frame["text"].str.len_bytes().sum())
        self._licences.update(kept["licence"].drop_nulls().unique())
        return kept

    def counts(self, removed: pl.DataFrame) -> Counts:
        by_reason = removed.group_by("stage", "reason").len().sort("stage", "reason")
        return {
            **self._sizes,
            "removed": {f"{stage}/{reason}": count for stage, reason, count in by_reason.iter_rows()},
            "removed_by_stage": {stage: int((removed["stage"] == stage).sum()) for stage in _STAGES},
            "licences": dict.fromkeys(sorted(self._licences), 1),
        }


def _summary(counts: Sequence[Counts]) -> Counts:
    """Counts added up, with the share of what each stage got that it kept."""
    summary = retention_summary(counts)
    got = summary["documents_in"] - np.cumsum([0, *(summary["removed_by_stage"][stage] for stage in _STAGES)])
    kept = {
        stage: int(after) / max(1, int(before)) for stage, before, after in zip(_STAGES, got, got[1:], strict=False)
    }
    licences = sorted(summary["licences"])
    return {**summary, "retention_by_stage": kept, "licences": licences[:_LISTED_LICENCES]}
