"""WARC files: the text of HTML and plain-text responses, and of the text records of WET files."""

import re
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from marin_core.data.readers.compression import Unreadable, compression_of, read_chunks
from marin_core.data.readers.fields import MAX_RECORD_BYTES, as_batch, batch_schema, reraise_of_store
from marin_core.data.readers.html import html_text
from marin_core.data.readers.rejects import DAMAGED, OVERSIZED, TRUNCATED, FileRejects
from marin_core.data.sources.declaration import Layout

_BATCH_BYTES = 4 << 20
_HTML, _PLAIN = ("text/html", "application/xhtml+xml"), "text/plain"
_META_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)


def read_warc(file: IO[bytes], name: str, layout: Layout, rejects: FileRejects) -> Iterator[pa.RecordBatch]:
    """Batches of `batch_schema(layout)`: url is the target URI, source_id the record's id.

    A record is a response with status 200 and a text content type, or a conversion to plain text; the rest of a WARC
    file are no documents and are not counted.

    Raises:
        Unreadable: after all records before the damage.
    """
    from warcio.archiveiterator import ArchiveIterator

    schema = batch_schema(layout)
    rows, size, number = [], 0, 0
    records = ArchiveIterator(_Raw(read_chunks(file, name, rejects.size)))
    unreadable: Unreadable | None = None
    while True:
        try:
            record = next(records, None)
            if record is None:
                break
            text = _text(record, number, rejects)
        except Unreadable as error:
            unreadable = error
            break
        except Exception as error:  # the library trusts what records say of themselves
            reraise_of_store(error)
            read = file.tell() if compression_of(name) else records.offset
            unreadable = Unreadable(DAMAGED, f"no WARC record: {str(error)[:100]}", rejects.size - read)
            break
        if text is not None:
            headers = record.rec_headers
            rows.append((text, headers.get_header("WARC-Target-URI"), headers.get_header("WARC-Record-ID")))
            size += len(text)
        number += 1
        if size >= _BATCH_BYTES:
            yield as_batch(list(zip(*rows, strict=True)), schema)
            rows, size = [], 0
    if rows:
        yield as_batch(list(zip(*rows, strict=True)), schema)
    if unreadable:
        unreadable.position = number
        raise unreadable


class _Raw:
    """Chunks as a file that never waits for more than it has."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._left, self._position = chunks, b"", 0

    def read(self, size: int) -> bytes:
        data = self._left or next(self._chunks, b"")
        self._left = data[size:]
        self._position += len(data[:size])
        return data[:size]

    def tell(self) -> int:
        return self._position


def _text(record: Any, number: int, rejects: FileRejects) -> str | None:
    """None of what is no document, or is rejected.

    Raises:
        Unreadable: the file ends within the record.
    """
    content_type = _content_type(record)
    if content_type is None:
        return None
    try:
        body = _body(record)
    except Unreadable:
        raise
    except Exception as error:  # the body's own encoding (gzip, chunks) is broken
        reraise_of_store(error)
        rejects.record(number, DAMAGED, f"body of the response: {error}")
        return None
    if len(body) > MAX_RECORD_BYTES:
        rejects.record(number, OVERSIZED, f"a body of more than {MAX_RECORD_BYTES:,} bytes", body[:1_000])
        return None
    if record.raw_stream.limit > 0:
        raise Unreadable(TRUNCATED, "the file ends within a record", 0)
    text = _decoded(body, content_type)
    return html_text(text) if content_type.startswith(_HTML) else text


def _body(record: Any) -> bytes:
    stream, pieces, size = record.content_stream(), [], 0
    while size <= MAX_RECORD_BYTES and (piece := stream.read(1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _content_type(record: Any) -> str | None:
    """The content type of a document, None of what is none."""
    if record.rec_type == "conversion":
        return _PLAIN
    if record.rec_type != "response" or record.http_headers is None:
        return None
    content_type = (record.http_headers.get_header("Content-Type") or "").strip().lower()
    is_text = content_type.startswith((*_HTML, _PLAIN))
    return content_type if is_text and record.http_headers.get_statuscode() == "200" else None


def _decoded(body: bytes, content_type: str) -> str:
    """By the charset that the server says, that the page says, UTF-8, or what browsers fall back on."""
    declared = _CHARSET.search(content_type)
    in_page = _META_CHARSET.search(body[:2_048])
    charsets = [declared[1] if declared else None, in_page[1].decode("ascii") if in_page else None, "utf-8"]
    for charset in filter(None, charsets):
        try:
            return body.decode(charset)
        except (UnicodeDecodeError, LookupError):
            continue
    return body.decode("windows-1252", errors="replace")
