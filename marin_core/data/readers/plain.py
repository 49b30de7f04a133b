"""Text files: one document each."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from marin_core.data.readers.fields import MAX_RECORD_BYTES, as_batch, batch_schema
from marin_core.data.readers.rejects import INVALID_UTF8, OVERSIZED, FileRejects
from marin_core.data.sources.declaration import Layout


def read_plain(chunks: Iterable[bytes], name: str, layout: Layout, rejects: FileRejects) -> Iterator[pa.RecordBatch]:
    """A batch of one row; `source_id` is the file's name.

    Raises:
        Unreadable: what `chunks` raised. Half a document is none.
    """
    pieces, size = [], 0
    for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_RECORD_BYTES:
            rejects.record(0, OVERSIZED, f"a text of more than {MAX_RECORD_BYTES:,} bytes", pieces[0][:1_000])
            return
    data = b"".join(pieces)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rejects.record(0, INVALID_UTF8, f"byte {error.start}: {error.reason}", data)
        return
    yield as_batch([[text], [name]], batch_schema(layout))
