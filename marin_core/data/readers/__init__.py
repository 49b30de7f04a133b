"""Raw files of any declared layout as Arrow batches of bounded size. What is wrong with a file is told to its rejects,
and the rest goes on. What a format needs is in a module of its own; what is made of texts is in `normalization/`."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from marin_core.data.readers.array import read_array
from marin_core.data.readers.compression import COMPRESSIONS, Unreadable, compression_of, read_chunks
from marin_core.data.readers.fields import MAX_RECORD_BYTES, batch_schema, columns_of
from marin_core.data.readers.jsonl import read_jsonl
from marin_core.data.readers.plain import read_plain
from marin_core.data.readers.rejects import FileRejects
from marin_core.data.readers.table import read_parquet
from marin_core.data.readers.warc import read_warc
from marin_core.data.sources.declaration import Layout

__all__ = ["COMPRESSIONS", "MAX_RECORD_BYTES", "batch_schema", "columns_of", "compression_of", "read_batches"]


def read_batches(file: IO[bytes], name: str, layout: Layout, rejects: FileRejects) -> Iterator[pa.RecordBatch]:
    """The records of one raw file in its order, as batches of `batch_schema(layout)`, some megabytes each.

    Args:
        name: tells the compression, by its suffix; also the `source_id` of a text file.
        rejects: gets every record that cannot be used, and the rest of the file if that cannot be read.

    Raises:
        OSError: the store cannot be read; nothing else is raised, whatever the bytes are.
    """
    try:
        match layout.format:
            case "jsonl":
                yield from read_jsonl(read_chunks(file, name, rejects.size), layout, rejects)
            case "json":
                yield from read_array(read_chunks(file, name, rejects.size), layout, rejects)
            case "parquet":
                yield from read_parquet(file, layout, rejects)
            case "warc":
                yield from read_warc(file, name, layout, rejects)
            case "text":
                yield from read_plain(read_chunks(file, name, rejects.size), name, layout, rejects)
    except Unreadable as rest:
        rejects.rest(rest.position, rest.kind, rest.reason, rest.unread_bytes, rest.sample)
