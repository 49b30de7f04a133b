"""One part of a normalized source out of its blocks: exact duplicates dropped, sorted by id, written as Parquet."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from marin_core.data.normalization.spills import KEY_FIELDS, digest_bytes
from marin_core.data.normalization.text import DIGEST_BYTES, hex_ids
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, total

_COUNTED_LICENCES = 50
# Nothing repeats in them, so that a dictionary would be in vain.
_DISTINCT = ("id", "text", "messages", "url", "source_id")
_FIRST_COLUMNS = ("id", "text", "source", "licence")
_OLDEST = pl.CompatLevel.oldest()


@dataclass(frozen=True)
class Sizes:
    """Bytes of text at once: what bounds memory, and so is part of what a source's bytes depend on.

    A part has about `part`, estimated from the raw files. If it turns out to have more than `pass_`, it is written in
    several passes over its blocks. An item of small raw files reads `item` bytes of them.
    """

    part: int = 256 << 20
    pass_: int = 384 << 20
    row_group: int = 32 << 20
    item: int = 32 << 20


class Blocks(Protocol):
    """Reads a part's blocks, in order, as often as asked; with `keys_only` digest and size alone."""

    def __call__(self, *, keys_only: bool = False) -> Iterator[pa.RecordBatch]: ...


def merge_part(blocks: Blocks, file: IO[bytes], spilled: pa.Schema, source: Source, sizes: Sizes) -> Counts:
    """Write a part's documents, and count them; of equal ones the first in the order of the blocks is kept.

    `spilled` is the blocks' schema. Memory: about a gigabyte at most, and 24 bytes for each document of the part.
    """
    digests, lengths = _keys(blocks)
    kept = _first_of_equals(digests)
    schema = merged_schema(spilled)
    counts: list[Counts] = [{"documents": 0, "bytes": 0, "licences": {}}]
    with pq.ParquetWriter(file, schema, **_parquet_options(schema)) as writer:
        for rows in _by_bytes(kept, lengths, sizes.pass_):
            documents = _gather(blocks, rows)
            order = np.searchsorted(np.sort(rows), rows)
            for group in _by_bytes(np.arange(len(rows)), lengths[rows], sizes.row_group):
                columns = _with_constants(documents[order[group]], source)
                counts.append(_counts(columns))
                table = columns.to_arrow(compat_level=_OLDEST)
                table = table.add_column(0, "id", hex_ids(digests[rows[group]].tobytes()))
                writer.write_table(table.select(schema.names).cast(schema))
    return {**total(counts), "exact_duplicates": len(digests) - len(kept)}


def merged_schema(spilled: pa.Schema) -> pa.Schema:
    """The columns of a part, all strings."""
    rest = [name for name in spilled.names[len(KEY_FIELDS) :] if name not in _FIRST_COLUMNS]
    return pa.schema([(name, pa.string()) for name in (*_FIRST_COLUMNS, *rest)])


def _parquet_options(schema: pa.Schema) -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": [name for name in schema.names if name not in _DISTINCT],
        "write_statistics": ["id"],
    }


def _keys(blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Digests ([n, 2], big-endian halves) and lengths ([n]) of a part's documents."""
    digests, lengths = [b""], [np.zeros(0, np.int64)]
    for block in blocks(keys_only=True):
        digests.append(digest_bytes(block.column("digest")))
        lengths.append(block.column("size").to_numpy())
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, DIGEST_BYTES // 8), np.concatenate(lengths)


def _first_of_equals(digests: np.ndarray) -> np.ndarray:
    """Rows sorted by digest, of equal ones the first row alone."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    first = np.ones(len(order), bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order[first]


def _by_bytes(rows: np.ndarray, lengths: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Consecutive rows whose lengths add up to about `most`."""
    if len(rows):
        bins = (np.cumsum(lengths[rows]) - lengths[rows]) // most
        yield from np.split(rows, np.flatnonzero(np.diff(bins)) + 1)


def _gather(blocks: Blocks, rows: np.ndarray) -> pl.DataFrame:
    """The wanted rows of all blocks, in the order of the blocks."""
    wanted, start, found = np.sort(rows), 0, []
    for block in blocks():
        low, high = np.searchsorted(wanted, [start, start + len(block)])
        if high - low == len(block):
            found.append(block)
        elif high > low:
            found.append(block.take(pa.array(wanted[low:high] - start)))
        start += len(block)
    return pl.DataFrame(pa.Table.from_batches(found).drop_columns([name for name, _ in KEY_FIELDS]))


def _with_constants(documents: pl.DataFrame, source: Source) -> pl.DataFrame:
    licence = pl.col("licence").fill_null(source.licence) if "licence" in documents.columns else pl.lit(source.licence)
    return documents.with_columns(source=pl.lit(source.name), licence=licence)


def _counts(documents: pl.DataFrame) -> Counts:
    licences = documents["licence"].value_counts().sort("count", "licence", descending=[True, False])
    return {
        "documents": len(documents),
        "bytes": int(documents["text"].str.len_bytes().sum()),
        "licences": dict(licences.head(_COUNTED_LICENCES).iter_rows()),
    }
