"""Parquet files, a row group at a time."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from marin_core.data.readers.compression import Unreadable
from marin_core.data.readers.fields import (
    MAX_RECORD_BYTES,
    MESSAGES,
    MESSAGES_TYPE,
    TEXT,
    as_strings,
    batch_schema,
    columns_of,
    messages_of,
    reraise_of_store,
)
from marin_core.data.readers.rejects import (
    BAD_MESSAGES,
    DAMAGED,
    INVALID_UTF8,
    NO_TEXT,
    OVERSIZED,
    SCHEMA_KIND,
    FileRejects,
)
from marin_core.data.sources.declaration import Layout

_BATCH_BYTES, _BATCH_ROWS, _REPEATED_ROWS = 8 << 20, 16_384, 1_024
_READ_BYTES = 4 << 20


def read_parquet(file: IO[bytes], layout: Layout, rejects: FileRejects) -> Iterator[pa.RecordBatch]:
    """Batches of `batch_schema(layout)`, every row that has a text of its own; optional columns may be missing.

    A row group that cannot be read is one reject, and the next is read.

    Raises:
        Unreadable: this is no Parquet file, or it has no such text column.
    """
    size = rejects.size
    try:
        table = pq.ParquetFile(file, buffer_size=_READ_BYTES)
    except (pa.ArrowException, OSError, ValueError) as error:
        reraise_of_store(error)
        raise Unreadable(DAMAGED, f"not a Parquet file: {error}", size) from None
    _check_schema(table.schema_arrow, layout, size)
    fields = sorted({field for field in columns_of(layout).values() if field in table.schema_arrow.names})
    start = 0
    for group in range(table.num_row_groups):
        row = start
        for batch in _group_batches(table, group, fields, rejects, start):
            yield _usable_rows(_columns(batch, layout), row, layout, rejects)
            row += len(batch)
        start += table.metadata.row_group(group).num_rows


def _group_batches(
    table: pq.ParquetFile, group: int, fields: list[str], rejects: FileRejects, row: int
) -> Iterator[pa.RecordBatch]:
    metadata = table.metadata.row_group(group)
    batches = table.iter_batches(_batch_rows(metadata), [group], fields, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            reraise_of_store(error)
            stored = sum(metadata.column(column).total_compressed_size for column in range(metadata.num_columns))
            rejects.rest(row, DAMAGED, f"row group {group}: {error}", stored)
            return
        if batch is None:
            return
        yield batch
        row += len(batch)


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    # The sizes say little of values that are stored once and repeated.
    repeated = any(group.column(column).has_dictionary_page for column in range(group.num_columns))
    rows = int(_BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1))
    return min(max(rows, 16), _REPEATED_ROWS if repeated else _BATCH_ROWS)


def _check_schema(schema: pa.Schema, layout: Layout, size: int) -> None:
    field = layout.messages_field or layout.text_field
    found = ", ".join(f"{each.name}: {each.type}" for each in schema)
    if field not in schema.names:
        raise Unreadable(SCHEMA_KIND, f"expected a column {field!r}, found {found}", size)
    kind = schema.field(field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    textual = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binary = (pa.types.is_binary, pa.types.is_large_binary)
    if layout.messages_field and not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise Unreadable(SCHEMA_KIND, f"expected a list of messages in column {field!r}, found {kind}", size)
    if not layout.messages_field and not any(is_type(kind) for is_type in (*textual, *binary)):
        raise Unreadable(SCHEMA_KIND, f"expected strings in column {field!r}, found {kind}", size)


def _columns(batch: pa.RecordBatch, layout: Layout) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for column, field in columns_of(layout).items():
        if field not in batch.schema.names:
            columns[column] = pa.nulls(len(batch), pa.string())
        elif column == MESSAGES:
            columns[column] = batch.column(field)
        else:
            columns[column] = as_strings(batch.column(field))
    return columns


def _usable_rows(columns: dict[str, pa.Array], first: int, layout: Layout, rejects: FileRejects) -> pa.RecordBatch:
    """The rows that have what a document needs; the others are rejected."""
    bad: dict[int, tuple[str, str]] = {}
    for column, values in columns.items():
        if column == MESSAGES:
            columns[column] = _messages(values, bad)
            continue
        for row in _invalid_rows(values):
            bad.setdefault(row, (INVALID_UTF8, f"column {column!r} is not UTF-8"))
        if column == TEXT:
            for row in _rows_where(values.is_null()):
                bad.setdefault(row, (NO_TEXT, f"no value in column {layout.text_field!r}"))
            for row in _long_rows(values):
                bad.setdefault(row, (OVERSIZED, f"a text of more than {MAX_RECORD_BYTES:,} bytes"))
    for row in sorted(bad):
        rejects.record(first + row, *bad[row], _sample(next(iter(columns.values())), row))
    batch = pa.record_batch(list(columns.values()), schema=batch_schema(layout))
    if not bad:
        return batch
    return batch.filter(pa.array([row not in bad for row in range(len(batch))]))


def _invalid_rows(values: pa.Array) -> list[int]:
    """Rows whose bytes are not UTF-8."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return [row for row in range(len(values)) if not _decodes(values[row])]
    return []


def _decodes(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _messages(values: pa.Array, bad: dict[int, tuple[str, str]]) -> pa.Array:
    conversations: list[list[dict[str, str]]] = []
    for row, value in enumerate(values):
        conversation: list[dict[str, str]] = []
        try:
            if value.is_valid:
                conversation = messages_of(value.as_py())
            else:
                bad[row] = (NO_TEXT, "no messages")
        except UnicodeDecodeError:
            bad[row] = (INVALID_UTF8, "messages are not UTF-8")
        except ValueError as error:
            bad[row] = (BAD_MESSAGES, str(error))
        conversations.append(conversation)
    return pa.array(conversations, MESSAGES_TYPE)


def _long_rows(values: pa.Array) -> list[int]:
    lengths = pc.call_function("binary_length", [values]).fill_null(0)
    return (lengths.to_numpy(zero_copy_only=False) > MAX_RECORD_BYTES).nonzero()[0].tolist()


def _rows_where(mask: pa.Array) -> list[int]:
    return mask.to_numpy(zero_copy_only=False).nonzero()[0].tolist()


def _sample(values: pa.Array, row: int) -> bytes | str:
    value = values[row]
    text = isinstance(value, pa.StringScalar) and value.as_buffer()
    return text[:1_000].to_pybytes() if text else ""
