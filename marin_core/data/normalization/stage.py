"""The normalized artifact of a source: its raw files as documents in normal form, exact duplicates removed, by id.

`documents/part-….parquet` hold contiguous ranges of ids; their columns are id (xxh3-128 of the text, or of a
conversation's messages; 32 hex digits), text, source, licence, url, source_id, messages (where the layout has them) and
the layout's kept fields, all strings. `rejects/part-00000-of-00001.parquet` has what could not be read.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, cast

import pyarrow as pa

from marin_core.data.normalization.conversion import coalesce, document_schema, documents_of
from marin_core.data.normalization.merge import Sizes, merge_part
from marin_core.data.normalization.spills import SpillWriter, read_blocks
from marin_core.data.readers import batch_schema, compression_of, read_batches
from marin_core.data.readers.rejects import FileRejects, Rejects, write_rejects
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, Phase, Stage, counts_of, total
from marin_core.errors import MarinError
from marin_core.store import Artifact, Workspace

SIZES = Sizes()
REJECTS = "rejects/part-00000-of-00001.parquet"
_ITEM_FILES = 1_000
# Text per stored byte, about: what a format adds to the text, and what a compression takes off.
_FORMATS = {"jsonl": 1.0, "json": 1.0, "parquet": 2.5, "warc": 0.25, "text": 1.0}
_COMPRESSIONS = {None: 1.0, ".gz": 3.0, ".zst": 3.5, ".zstd": 3.5, ".bz2": 4.0, ".xz": 4.5}
_LISTED_LICENCES, _LISTED_KINDS = 50, 3


@dataclass(frozen=True)
class RawFile:
    """An entry of the raw manifest."""

    path: str
    bytes: int


def part_path(folder: str, part: int, parts: int) -> str:
    return f"{folder}/part-{part:05d}-of-{parts:05d}.parquet"


def normalize_stage(
    source: Source, raw: Artifact, workspace: Workspace, log: Callable[[str], None], sizes: Sizes = SIZES
) -> Stage:
    """The stage that builds `normalized/<source>`. Its summary: files, bytes_in, records, rejected (by kind),
    unread_bytes (of files that could not be read to their end), empty, exact_duplicates, documents, bytes (of text),
    licences, retention (documents of records). Records are rejected, empty, duplicates or documents.

    Raises:
        MarinError: the layout cannot be (see `columns_of`), or the raw artifact has no files; from `finish`: too much
            was rejected, or no document is left.
    """
    files = [RawFile(file["path"], file["bytes"]) for file in raw.read_json("manifest.json")["files"]]
    if not files:
        raise MarinError(f"source {source.name!r} has no raw files; correct its origin and fetch it again")
    normalization = _Normalization(source, raw, workspace, files, sizes)
    split = Phase("split", len(normalization.items), normalization.split)
    rejects = Phase("rejects", 1, lambda item: normalization.gather_rejects(counts_of(split, workspace)))
    merge = Phase("merge", normalization.parts, normalization.merge)

    def finish(counts: Sequence[Sequence[Counts]]) -> Counts:
        summary = _summary(total(counts[0]), total(counts[2]))
        _check_summary(source, summary, workspace)
        log(f"normalized/{source.name}: {summary['documents']:,} documents of {summary['records']:,} records")
        return summary

    return Stage((split, rejects, merge), finish)


def count_parts(source: Source, files: Sequence[RawFile], part_bytes: int = SIZES.part) -> int:
    """How many parts a source gets: so many that each has about `part_bytes` of text."""
    text = sum(file.bytes * _COMPRESSIONS[compression_of(file.path)] for file in files) * _FORMATS[source.layout.format]
    return max(ceil(text / part_bytes), 1)


def group_files(files: Sequence[RawFile], item_bytes: int = SIZES.item) -> list[list[RawFile]]:
    """The files of each item of the split phase, in order: small ones together."""
    groups: list[list[RawFile]] = []
    size = 0
    for file in files:
        if not groups or size + file.bytes > item_bytes or len(groups[-1]) == _ITEM_FILES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return groups


class _Normalization:
    """What the items of a stage's phases do."""

    def __init__(self, source: Source, raw: Artifact, workspace: Workspace, files: Sequence[RawFile], sizes: Sizes):
        self._source, self._raw, self._workspace, self._sizes = source, raw, workspace, sizes
        self.items = group_files(files, sizes.item)
        self.parts = count_parts(source, files, sizes.part)
        self._schema = document_schema(batch_schema(source.layout))

    def split(self, item: int) -> Counts:
        """Read the item's files into a spill of documents and one of rejects."""
        counts = {"files": 0, "bytes_in": 0, "records": 0, "empty": 0}
        with (
            Rejects(lambda: self._workspace.open_work(_rejects(item))) as rejects,
            self._workspace.open_work(_spill(item)) as file,
            SpillWriter(file, self._schema, self.parts) as spill,
        ):
            for batch in coalesce(self._records(item, rejects, counts)):
                documents = documents_of(batch)
                counts["records"] += len(batch)
                counts["empty"] += len(batch) - len(documents)
                spill.add(documents)
        counts["records"] += rejects.counts.total()
        return {**counts, "rejected": dict(rejects.counts), "unread_bytes": rejects.unread_bytes}

    def _records(self, item: int, rejects: Rejects, counts: Counts) -> Iterator[pa.RecordBatch]:
        for file in self.items[item]:
            rejected = FileRejects(rejects, file.path, file.bytes)
            with self._raw.open(file.path) as opened:
                yield from read_batches(opened, file.path, self._source.layout, rejected)
            if rejected.count:
                _check_stored(self._raw, file.path)
            counts["files"] += 1
            counts["bytes_in"] += file.bytes

    def gather_rejects(self, counts: Sequence[Counts]) -> Counts:
        items = [item for item, each in enumerate(counts) if each["rejected"]]
        with self._workspace.open(REJECTS) as file:
            write_rejects((self._workspace.open_work(_rejects(item), "rb") for item in items), file)
        return {}

    def merge(self, part: int) -> Counts:
        """Write a part out of all spills."""

        def blocks(*, keys_only: bool = False) -> Iterator[pa.RecordBatch]:
            for item in range(len(self.items)):
                with self._workspace.open_work(_spill(item), "rb") as file:
                    yield from read_blocks(file, part, self.parts, keys_only=keys_only)

        with self._workspace.open(part_path("documents", part, self.parts)) as file:
            return merge_part(blocks, file, self._schema, self._source, self._sizes)


def _rejects(item: int) -> str:
    return f"rejects/{item:05d}.arrow"


def _spill(item: int) -> str:
    return f"split/{item:05d}.arrow"


def _check_stored(raw: Artifact, path: str) -> None:
    """Raises MarinError if a file is not what was fetched: what is wrong with it is then no fault of the source."""
    with raw.open(path) as file:
        found = hashlib.file_digest(cast("Any", file), "sha256").hexdigest()
    if found != {entry.path: entry.sha256 for entry in raw.record.files}.get(path):
        raise MarinError(
            f"{raw.path(path)} is damaged: its bytes are not those that were committed; delete the folder {raw.url} "
            f"and materialize {raw.record.name} again"
        )


def _summary(split: Counts, merged: Counts) -> Counts:
    return {
        **split,
        **merged,
        "licences": sorted(merged["licences"])[:_LISTED_LICENCES],
        "retention": merged["documents"] / split["records"] if split["records"] else 0.0,
    }


def _check_summary(source: Source, summary: Counts, workspace: Workspace) -> None:
    rejected = sum(summary["rejected"].values())
    share = min(rejected / max(summary["records"], 1) + summary["unread_bytes"] / max(summary["bytes_in"], 1), 1.0)
    if share > source.curation.max_reject_share:
        kinds = sorted(summary["rejected"].items(), key=lambda kind: (-kind[1], kind[0]))[:_LISTED_KINDS]
        raise MarinError(
            f"source {source.name!r}: {share:.2%} could not be read ({rejected:,} of {summary['records']:,} records, "
            f"{summary['unread_bytes']:,} of {summary['bytes_in']:,} bytes: "
            f"{', '.join(f'{count:,} {kind}' for kind, count in kinds)}), its max_reject_share is "
            f"{source.curation.max_reject_share:.2%}; see {workspace.path(REJECTS)}, then correct the source's layout "
            f"or files, or raise max_reject_share"
        )
    if not summary["documents"]:
        raise MarinError(
            f"source {source.name!r} has no documents left: {summary['records']:,} records came in, "
            f"{summary['empty']:,} of them empty; correct its origin or layout"
        )
