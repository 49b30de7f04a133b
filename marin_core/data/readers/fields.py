"""Which columns readers make of a layout's fields, and how a field's value becomes text."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from marin_core.data.sources.declaration import Layout
from marin_core.errors import MarinError

# Longer records and texts are rejected: no document is that long, and one must fit in memory several times.
MAX_RECORD_BYTES = 64 << 20
TEXT, MESSAGES = "text", "messages"
MESSAGES_TYPE = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_OWN_COLUMNS = ("id", TEXT, "source", "licence", "url", "source_id", MESSAGES)


class BadRecord(Exception):
    """One record cannot be used."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind, self.reason = kind, reason


def columns_of(layout: Layout) -> dict[str, str]:
    """Columns of a batch, in order, and the field that each is made of.

    `text`, or `messages` of conversations; then `url`, `source_id`, `licence` as far as the layout declares them, then
    the kept fields. WARC and text files have `url` and `source_id` of their own.

    Raises:
        MarinError: a kept field has the name of a column.
    """
    taken = [field for field in layout.keep_fields if field in _OWN_COLUMNS]
    if taken:
        raise MarinError(
            f"keep_fields has {', '.join(taken)}, which documents have anyway; declare url_field, id_field or "
            f"licence_field instead"
        )
    columns = {MESSAGES: layout.messages_field} if layout.messages_field else {TEXT: layout.text_field}
    if layout.format in ("warc", "text"):
        columns |= {"url": "url"} if layout.format == "warc" else {}
        return {**columns, "source_id": "source_id"}
    optional = {"url": layout.url_field, "source_id": layout.id_field, "licence": layout.licence_field}
    columns |= {column: field for column, field in optional.items() if field}
    return columns | {field: field for field in layout.keep_fields}


def batch_schema(layout: Layout) -> pa.Schema:
    """Columns as `columns_of`, all strings but `messages`: lists of `{role, content}`."""
    return pa.schema([(column, MESSAGES_TYPE if column == MESSAGES else pa.string()) for column in columns_of(layout)])


def as_strings(values: pa.Array) -> pa.Array:
    """Values of any type as strings: strings and bytes as they are, UTF-8 or not; numbers as Arrow writes them; what
    Arrow does not write as JSON."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())
    if pa.types.is_binary(values.type):
        return values.view(pa.string())
    try:
        return pc.cast(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([_as_json(value) for value in values.to_pylist()], pa.string())


def value_as_string(value: Any) -> str | None:
    """As `as_strings`, for one value of JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        # Arrow and Python write these alike, but for a fraction of zero.
        plain = 1e-4 <= abs(value) < 1e10
        return repr(value).removesuffix(".0") if plain else pc.cast(pa.scalar(value), pa.string()).as_py()
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def messages_of(value: Any) -> list[dict[str, str]]:
    """A conversation's messages, reduced to role and content.

    Raises:
        ValueError: it is not a list of objects with a role and a content that are strings.
    """
    if not isinstance(value, list):
        raise ValueError(f"expected a list of messages, found {type(value).__name__}")
    messages = []
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            raise ValueError(f"message {number} is not an object")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise ValueError(f"message {number}: its {key} is not a string")
        messages.append({"role": message["role"], "content": message["content"]})
    return messages


def as_batch(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of Python values, column by column."""
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def reraise_of_store(error: Exception) -> None:
    """What the file system says has a number; what libraries say of a file's bytes has none."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
