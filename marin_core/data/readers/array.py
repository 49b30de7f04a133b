"""JSON files: one array of objects or of texts, read whole, so for small files only."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from marin_core.data.readers.compression import Unreadable
from marin_core.data.readers.jsonl import read_jsonl
from marin_core.data.readers.rejects import BROKEN_JSON, INVALID_UTF8, OVERSIZED, SCHEMA_KIND, FileRejects
from marin_core.data.sources.declaration import Layout

MAX_FILE_BYTES = 512 << 20


def read_array(chunks: Iterable[bytes], layout: Layout, rejects: FileRejects) -> Iterator[pa.RecordBatch]:
    """Batches of `batch_schema(layout)`; the position of a reject is the element, from 1.

    Raises:
        Unreadable: the file is no array, not JSON, or larger than 512 MiB; half an array is none.
    """
    elements = _elements(b"".join(_limited(chunks, rejects.size)), rejects.size)
    records = (element if isinstance(element, dict) else {layout.text_field: element} for element in elements)
    yield from read_jsonl((json.dumps(record).encode() + b"\n" for record in records), layout, rejects)


def _elements(data: bytes, size: int) -> list[Any]:
    try:
        elements = json.loads(data)
    except UnicodeDecodeError as error:
        raise Unreadable(INVALID_UTF8, f"byte {error.start}: {error.reason}", size) from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(BROKEN_JSON, f"{error}; write one object a line and read it as jsonl", size) from None
    if not isinstance(elements, list):
        raise Unreadable(SCHEMA_KIND, f"expected an array of objects or texts, found {type(elements).__name__}", size)
    return elements


def _limited(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    read = 0
    for chunk in chunks:
        read += len(chunk)
        if read > MAX_FILE_BYTES:
            reason = f"an array of more than {MAX_FILE_BYTES:,} bytes; write one object a line and read it as jsonl"
            raise Unreadable(OVERSIZED, reason, size)
        yield chunk
