"""Records as readers give them, made into documents: normalized, with ids, empty ones left out."""

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marin_core.data.normalization.spills import spill_schema
from marin_core.data.normalization.text import DIGEST_BYTES, digests, normalize_texts
from marin_core.data.readers.fields import MESSAGES, TEXT

_BATCH_BYTES, _BATCH_ROWS = 4 << 20, 16_384


def document_schema(batch_schema: pa.Schema) -> pa.Schema:
    """The spilled columns of documents that are made of batches of a schema."""
    columns = [pa.field(TEXT, pa.string())]
    for field in batch_schema:
        if field.name != TEXT:
            columns.append(pa.field(field.name, pa.string()))
    return spill_schema(columns)


def documents_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The documents of a batch of records, as `document_schema`; those whose text is empty are left out.

    The text of a conversation is its messages' contents, with an empty line between them; its id is that of the
    messages, which are kept as JSON.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    if MESSAGES in columns:
        columns = {TEXT: pa.nulls(0), **columns}
        columns[TEXT], columns[MESSAGES] = _conversations(columns[MESSAGES])
    else:
        columns[TEXT] = normalize_texts(columns[TEXT])
    schema = document_schema(batch.schema)
    documents = pa.record_batch(list(columns.values()), names=list(columns))
    full = pc.call_function("binary_length", [columns[TEXT]]).to_numpy() > 0
    if not full.all():
        documents = documents.filter(pa.array(full))
    keys = pa.py_buffer(digests(documents.column(MESSAGES if MESSAGES in columns else TEXT)))
    digest = pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST_BYTES), len(documents), [None, keys])
    return pa.record_batch([digest, _sizes(documents), *documents.columns], schema=schema)


def coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth a call: small ones are put together."""
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        pending.append(batch)
        size, rows = size + batch.nbytes, rows + len(batch)
        if size >= _BATCH_BYTES or rows >= _BATCH_ROWS:
            yield _joined(pending)
            pending, size, rows = [], 0, 0
    if rows:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _sizes(documents: pa.RecordBatch) -> pa.Array:
    sizes = np.zeros(len(documents), np.int64)
    for column in documents.columns:
        sizes += pc.call_function("binary_length", [column]).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(sizes)


def _conversations(messages: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Texts and canonical JSON of lists of `{role, content}`, contents normalized."""
    flat = messages.flatten()
    roles = flat.field("role").to_pylist()
    contents = normalize_texts(flat.field("content")).to_pylist()
    lengths = messages.value_lengths().to_pylist()
    texts, texts_json, start = [], [], 0
    for length in lengths:
        turns = range(start, start + length)
        texts.append("\n\n".join(contents[turn] for turn in turns))
        listed = [{"role": roles[turn], "content": contents[turn]} for turn in turns]
        texts_json.append(json.dumps(listed, ensure_ascii=False, separators=(",", ":")))
        start += length
    return normalize_texts(pa.array(texts, pa.string())), pa.array(texts_json, pa.string())
