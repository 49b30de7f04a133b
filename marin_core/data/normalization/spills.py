"""Documents on their way from raw files to parts: blocks by range of id, in intermediate files.

A spill is an Arrow IPC file whose record batch `i` belongs to part `i mod parts`, so that a part's blocks are found
without an index. Within a part, and over the spills in order, documents keep the order in which they were read.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import IO

import numpy as np
import polars as pl
import pyarrow as pa

from marin_core.data.normalization.text import DIGEST_BYTES

# A run, held in memory, becomes one block for each part.
_RUN_BYTES, _BLOCK_BYTES = 128 << 20, 4 << 20
_OLDEST = pl.CompatLevel.oldest()
KEY_FIELDS = [("digest", pa.binary(DIGEST_BYTES)), ("size", pa.int64())]


def spill_schema(columns: Sequence[pa.Field]) -> pa.Schema:
    """`digest` and `size` (UTF-8 bytes of all columns), then the document's own columns."""
    return pa.schema([*KEY_FIELDS, *columns])


def part_numbers(digest_bytes: bytes, parts: int) -> np.ndarray:
    """The part of each digest: equal, contiguous ranges of its first four bytes."""
    leading = np.frombuffer(digest_bytes, ">u4")[:: DIGEST_BYTES // 4].astype(np.uint64)
    return (leading * np.uint64(parts)) >> np.uint64(32)


class SpillWriter:
    """Distributes batches of documents over the parts. A context manager: the spill is whole once left."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, parts: int):
        self._schema, self._parts = schema, parts
        # What stays in the page cache is not worth compressing; what disks and object stores are waited for is.
        options = pa.ipc.IpcWriteOptions(compression="lz4" if parts > 1 else None, use_threads=False)
        self._writer = pa.ipc.new_file(file, schema, options=options)
        self._run_bytes = min(_RUN_BYTES, _BLOCK_BYTES * parts)
        self._run: list[pa.RecordBatch] = []
        self._pending = 0

    def __enter__(self) -> "SpillWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._run.append(batch)
        self._pending += batch.nbytes
        if self._pending >= self._run_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._run:
            return
        table = pa.Table.from_batches(self._run, self._schema)
        self._run, self._pending = [], 0
        if self._parts == 1:
            self._writer.write_batch(_one_batch(table))
            return
        numbers = part_numbers(_digests(table), self._parts)
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(self._parts + 1))
        rows = _one_batch(pl.DataFrame(table)[order].to_arrow(compat_level=_OLDEST).cast(self._schema))
        for start, end in pairwise(bounds.tolist()):
            self._writer.write_batch(rows.slice(start, end - start))


def read_blocks(file: IO[bytes], part: int, parts: int, *, keys_only: bool = False) -> Iterator[pa.RecordBatch]:
    """A part's blocks of a spill, in order; with `keys_only` digest and size alone."""
    fields = list(range(len(KEY_FIELDS))) if keys_only else None
    reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields))
    for index in range(part, reader.num_record_batches, parts):
        yield reader.get_batch(index)


def _digests(table: pa.Table) -> bytes:
    return b"".join(digest_bytes(chunk) for chunk in table["digest"].chunks)


def digest_bytes(values: pa.Array) -> bytes:
    """A column of digests as bytes in a row."""
    start = values.offset * DIGEST_BYTES
    return values.buffers()[1].slice(start, len(values) * DIGEST_BYTES).to_pybytes() if len(values) else b""


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
