"""JSON lines: blocks of lines through Arrow's parser, and line by line only where something is wrong."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.json

from marin_core.data.readers.fields import (
    MESSAGES,
    MESSAGES_TYPE,
    TEXT,
    BadRecord,
    as_batch,
    as_strings,
    batch_schema,
    columns_of,
    messages_of,
    value_as_string,
)
from marin_core.data.readers.lines import blocks_of_lines
from marin_core.data.readers.rejects import (
    BAD_MESSAGES,
    BROKEN_JSON,
    INVALID_UTF8,
    NO_TEXT,
    TEXT_NOT_STRING,
    FileRejects,
)
from marin_core.data.sources.declaration import Layout

# Lines around a bad one that are parsed one by one with it.
_FEW_LINES = 16
_PEEKED_LINES = 64


def read_jsonl(chunks: Iterable[bytes], layout: Layout, rejects: FileRejects) -> Iterator[pa.RecordBatch]:
    """Batches of a decompressed file, `batch_schema(layout)`; empty lines are no records."""
    reader = None
    for number, block in blocks_of_lines(chunks, rejects):
        reader = reader or _Reader(layout, rejects, block)
        yield from reader.read(number, block)


class _Reader:
    """Parses blocks of lines. Types of optional fields are guessed from the first lines, for speed only."""

    def __init__(self, layout: Layout, rejects: FileRejects, first: bytes):
        self._columns, self._schema, self._rejects = columns_of(layout), batch_schema(layout), rejects
        self._types = _guess_types(self._columns, first)

    def read(self, number: int, block: bytes) -> Iterator[pa.RecordBatch]:
        batch = self._parse(block)
        if batch is not None:
            yield batch
            return
        lines = block.split(b"\n")
        for start in range(0, len(lines), _FEW_LINES):
            few = lines[start : start + _FEW_LINES]
            yield self._parse(b"\n".join(few)) or self._parse_lines(number + start, few)

    def _parse(self, block: bytes) -> pa.RecordBatch | None:
        """None if there is anything wrong or unusual in the block."""
        if self._types is None or not block.strip() or not _is_utf8(block):
            return None
        # A field may be text and kept: then it is read as text, the first column.
        fields = {field: self._types[column] for column, field in reversed(self._columns.items())}
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(block),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema(list(fields.items())), unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if len(table) != _records(block) or not _usable(table[next(iter(self._columns.values()))]):
            return None
        batch = table.combine_chunks().to_batches()[0]
        columns = [batch.column(field) for field in self._columns.values()]
        return pa.record_batch(
            [column if column.type == MESSAGES_TYPE else as_strings(column) for column in columns], schema=self._schema
        )

    def _parse_lines(self, number: int, lines: list[bytes]) -> pa.RecordBatch:
        rows = []
        for offset, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                rows.append(self._values(line))
            except BadRecord as bad:
                self._rejects.record(number + offset, bad.kind, bad.reason, line)
        return as_batch(list(zip(*rows, strict=True)) or [[]] * len(self._schema), self._schema)

    def _values(self, line: bytes) -> list[Any]:
        record = _record(line)
        values = []
        for column, field in self._columns.items():
            value = record.get(field)
            if column == MESSAGES:
                values.append(_messages(value, field))
            elif column == TEXT:
                values.append(_text(value, field))
            else:
                floating = self._types is not None and self._types[column] == pa.float64()
                values.append(value_as_string(float(value) if floating and type(value) is int else value))
        if b"\\u" in line:
            self._check_unicode(values)
        return values

    def _check_unicode(self, values: list[Any]) -> None:
        try:
            as_batch([[value] for value in values], self._schema)
        except UnicodeEncodeError:
            raise BadRecord(INVALID_UTF8, "half of a surrogate pair is escaped in a string") from None


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadRecord(INVALID_UTF8, f"byte {error.start} of the line: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise BadRecord(BROKEN_JSON, str(error)) from None
    if not isinstance(record, dict):
        raise BadRecord(BROKEN_JSON, f"expected an object, found {type(record).__name__}")
    return record


def _text(value: Any, field: str) -> str:
    if value is None:
        raise BadRecord(NO_TEXT, f"no field {field!r}")
    if not isinstance(value, str):
        raise BadRecord(TEXT_NOT_STRING, f"field {field!r} is of type {type(value).__name__}")
    return value


def _messages(value: Any, field: str) -> list[dict[str, str]]:
    if value is None:
        raise BadRecord(NO_TEXT, f"no field {field!r}")
    try:
        return messages_of(value)
    except ValueError as error:
        raise BadRecord(BAD_MESSAGES, str(error)) from None


def _usable(column: pa.ChunkedArray) -> bool:
    """Whether every row has its text, or its messages with role and content."""
    if column.null_count or column.type != MESSAGES_TYPE:
        return not column.null_count
    messages = column.combine_chunks().flatten()
    return not messages.null_count and not any(part.null_count for part in messages.flatten())


def _is_utf8(block: bytes) -> bool:
    whole = pa.py_buffer(block)
    try:
        offsets = pa.array([0, len(block)], pa.int64()).buffers()[1]
        pa.LargeStringArray.from_buffers(1, offsets, whole).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _records(block: bytes) -> int:
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    return lines if b"\n\n" not in block and not block.startswith(b"\n") else sum(map(bool, block.split(b"\n")))


def _guess_types(columns: dict[str, str], block: bytes) -> dict[str, pa.DataType] | None:
    """Types that the first lines have; None if Arrow's parser cannot make a field's values strings."""
    types: dict[str, pa.DataType] = {}
    for line in islice(block.split(b"\n", _PEEKED_LINES), _PEEKED_LINES):
        try:
            record = _record(line)
        except BadRecord:
            continue
        for column, field in columns.items():
            value = record.get(field)
            if value is not None and column not in types and column not in (TEXT, MESSAGES):
                guess = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(type(value))
                if guess is None:
                    return None
                types[column] = guess
    guessed = {column: types.get(column, pa.string()) for column in columns}
    return guessed | ({MESSAGES: MESSAGES_TYPE} if MESSAGES in columns else {})
