"""Reading and writing documents and their attributes part by part, in bounded memory, checked against the record.

A part is one Parquet file of a folder of the artifact; the parts of a folder, in the order of their names, are sorted
by document id within and across. What the columns mean is in the modules of the stages.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from marin_core.data.stages import Counts, total
from marin_core.errors import MarinError
from marin_core.store import Artifact, Workspace

DOCUMENTS = "documents"
BATCH_BYTES = 8_000_000
ROW_GROUP_BYTES = 16_000_000
# Rows taken from Parquet at a time while a batch is filled.
_ROWS = 256


def document_parts(artifact: Artifact) -> list[str]:
    """Paths of the parts of `documents/`, in order of document id.

    Raises:
        MarinError: the artifact has none.
    """
    return attribute_parts(artifact, DOCUMENTS)


def attribute_parts(artifact: Artifact, folder: str) -> list[str]:
    """Paths of the parts of a folder, in order of document id.

    Raises:
        MarinError: the artifact has none.
    """
    paths = sorted(entry.path for entry in artifact.record.files)
    parts = [path for path in paths if path.startswith(f"{folder}/part-") and path.endswith(".parquet")]
    if not parts:
        raise MarinError(
            f"{artifact.record.name} ({artifact.record.fingerprint}) has no {folder}/part-*.parquet; "
            f"delete the folder {artifact.url} and materialize {artifact.record.name} again"
        )
    return parts


def part_schema(artifact: Artifact, path: str) -> pl.Schema:
    """Columns of a part, by name."""
    with artifact.open(path) as file:
        return pl.Schema(pl.read_parquet_schema(file))


def read_part(artifact: Artifact, path: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A part, or some of its columns, whole.

    Raises:
        StoreError: the file is missing or damaged.
    """
    table = pq.read_table(pa.BufferReader(artifact.read(path)), columns=None if columns is None else list(columns))
    return _frame(table)


def text_batches(
    artifact: Artifact, path: str, columns: Sequence[str] = ("id", "text"), batch_bytes: int = BATCH_BYTES
) -> Iterator[pl.DataFrame]:
    """The rows of a part in order, in frames of about `batch_bytes` in memory; a longer document comes alone.

    Raises:
        StoreError: the file is missing or damaged.
    """
    file = pq.ParquetFile(pa.BufferReader(artifact.read(path)))
    pending: list[pa.RecordBatch] = []
    size = 0
    for rows in file.iter_batches(_ROWS, columns=list(columns), use_threads=False):
        for piece in _pieces(rows, batch_bytes):
            if pending and size + piece.nbytes > batch_bytes:
                yield _frame(pa.Table.from_batches(pending))
                pending, size = [], 0
            pending.append(piece)
            size += piece.nbytes
    if pending:
        yield _frame(pa.Table.from_batches(pending))


def read_documents(artifact: Artifact, columns: Sequence[str] = ("id", "text")) -> Iterator[pl.DataFrame]:
    """Every document of an artifact in order of id, in frames of bounded size.

    Raises:
        StoreError: a file is missing or damaged.
        MarinError: there are no documents.
    """
    for path in document_parts(artifact):
        yield from text_batches(artifact, path, columns)


def _pieces(rows: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Row batches of at most `batch_bytes`, by halves, or single rows."""
    if rows.num_rows <= 1 or rows.nbytes <= batch_bytes:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _pieces(rows.slice(0, half), batch_bytes)
    yield from _pieces(rows.slice(half), batch_bytes)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def write_part(workspace: Workspace, path: str, frame: pl.DataFrame) -> None:
    """Write a frame as one Parquet file of the artifact."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    with workspace.open(path) as file:
        pq.write_table(table, file, compression="zstd", compression_level=3)


def retention_summary(counts: Sequence[Counts]) -> Counts:
    """The items' counts `documents_in`, `documents`, `bytes`, `removed` and others added up, with the retention."""
    summary = total(counts)
    return {**summary, "retention": summary["documents"] / max(1, summary["documents_in"])}


class PartWriter:
    """Writes one Parquet file of the artifact from frames of the same columns, in row groups of bounded size."""

    def __init__(self, workspace: Workspace, path: str, schema: pl.Schema):
        self._file = workspace.open(path)
        self._columns = list(schema)
        self._pending = [schema.to_frame()]
        self._writer = pq.ParquetWriter(self._file, self._table().schema, compression="zstd", compression_level=3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and sum(map(len, self._pending)):
            self._writer.write_table(self._table())
        self._writer.close()
        self._file.close()

    def write(self, frame: pl.DataFrame) -> None:
        self._pending.append(frame.select(self._columns))
        if sum(each.estimated_size() for each in self._pending) >= ROW_GROUP_BYTES:
            self._writer.write_table(self._table())
            self._pending = self._pending[:1]

    def _table(self) -> pa.Table:
        return pl.concat(self._pending).to_arrow(compat_level=pl.CompatLevel.oldest())
