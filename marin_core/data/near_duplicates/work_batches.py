"""Intermediate files of numbered batches: what one item of a stage writes for each of many items of the next phase."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl
import pyarrow as pa

from marin_core.data.flat.arrays import Array
from marin_core.store import Workspace


def write_batches(workspace: Workspace, path: str, tables: Iterable[pa.Table]) -> None:
    """Write one file of batches, one for each table; at least one, all of one schema."""
    with workspace.open_work(path) as file:
        writer = None
        for table in tables:
            writer = writer or pa.ipc.new_file(file, table.schema)
            empty = pa.RecordBatch.from_pylist([], table.schema)
            writer.write_batch(next(iter(table.combine_chunks().to_batches()), empty))
        assert writer is not None, path
        writer.close()


def read_batches(workspace: Workspace, paths: Iterable[str], number: int = 0) -> pa.Table:
    """The batches of one number of some files, end to end; the other batches are not read."""
    return pa.Table.from_batches([_read(workspace, path, number) for path in paths])


def arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def partitioned(table: pa.Table, number: Array, count: int) -> Iterator[pa.Table]:
    """The rows of each number below `count`, in their order within a number."""
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(count + 1)).tolist()
    ordered = table if count == 1 else table.take(pa.array(order))
    for start, stop in itertools.pairwise(bounds):
        yield ordered.slice(start, stop - start)


def _read(workspace: Workspace, path: str, number: int) -> pa.RecordBatch:
    with workspace.open_work(path, "rb") as file, pa.ipc.open_file(file) as reader:
        return reader.get_batch(number)
