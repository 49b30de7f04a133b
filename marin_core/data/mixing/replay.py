"""Which documents a run saw: from a mixture, a seed and an index to text, read from the artifacts alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import xxhash

from marin_core.data.mixing.mixture import component_artifact, mixture_order
from marin_core.data.mixing.order import MixtureOrder
from marin_core.errors import MarinError
from marin_core.store import Artifact, Store, canonical_json

_HASHED_AT_ONCE = 1 << 16
# Parts of an index, files and row groups that are held at once.
_KEPT = 16


@dataclass(frozen=True)
class DocumentSpan:
    """The part of a document that lies in a training sequence.

    `shard` and `row` say where the document is among the curated ones; `offset` is the first of its tokens (BOS
    counted) that the sequence holds and `tokens` how many; `text` is the document's beginning.
    """

    source: str
    id: str
    shard: str
    row: int
    offset: int
    tokens: int
    text: str


@dataclass(frozen=True)
class ReplayedSequence:
    """One training sequence: its index in the order, and the documents in it."""

    index: int
    source: str
    sequence: int
    documents: tuple[DocumentSpan, ...]


class Replay:
    """A committed mixture, read the way a run of sequences of `seq_len` tokens reads it."""

    def __init__(
        self,
        store: Store,
        mixture: Artifact,
        *,
        seq_len: int,
        seed: int,
        run_tokens: int | None = None,
        characters: int = 80,
    ):
        self._store, self._seq_len, self._characters = store, seq_len, characters
        self._mixture: Mapping[str, Any] = mixture.read_json("mixture.json")
        self.order: MixtureOrder = mixture_order(self._mixture, seq_len=seq_len, seed=seed, run_tokens=run_tokens)

    def batch(self, step: int, batch_size: int) -> list[ReplayedSequence]:
        """The sequences of step `step` (from 0) of a run with a fixed batch size."""
        return self.sequences(range(step * batch_size, (step + 1) * batch_size))

    def sequences(self, indices: Sequence[int]) -> list[ReplayedSequence]:
        numbers, sequences = self.order.locate(indices)
        return [
            ReplayedSequence(index, self.order.names[number], int(sequence), self._documents(number, int(sequence)))
            for index, number, sequence in zip(indices, numbers, sequences, strict=True)
        ]

    def order_hash(self, sequences: int) -> str:
        """32 hex digits of the first `sequences` sequences: of what they are, not only of where they lie."""
        contents = {name: self._mixture["components"][name]["content"] for name in self.order.names}
        hashed = xxhash.xxh3_128(canonical_json({"components": contents, "seq_len": self._seq_len}).encode())
        for start in range(0, sequences, _HASHED_AT_ONCE):
            located = self.order.locate(np.arange(start, min(start + _HASHED_AT_ONCE, sequences)))
            hashed.update(np.stack(located).astype("<i8").tobytes())
        return hashed.hexdigest()

    def _documents(self, number: int, sequence: int) -> tuple[DocumentSpan, ...]:
        name = self.order.names[number]
        component = self._component(name)
        start = sequence * self._seq_len
        found = component.documents(start, start + self._seq_len)
        return tuple(
            DocumentSpan(name, **place, text=component.text(place["shard"], place["row"])[: self._characters])
            for place in found
        )

    @cache  # noqa: B019 (a replay lives as long as a command)
    def _component(self, name: str) -> "TokenizedDocuments":
        return TokenizedDocuments(self._store, component_artifact(self._store, self._mixture, name))


class TokenizedDocuments:
    """The training documents of a tokenized source by position in its stream of tokens."""

    def __init__(self, store: Store, tokenized: Artifact):
        self._tokenized = tokenized
        curated = tokenized.record.inputs["curated"]
        self._curated = store.committed(curated.name, curated.fingerprint)
        if self._curated.record.content != curated.content:
            raise MarinError(
                f"{curated.name} was built again with other content than {tokenized.record.name} was made from; "
                f"materialize {tokenized.record.name} again"
            )

    def documents(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        """{id, shard, row, offset, tokens} of every document with tokens in [start, end) of the stream."""
        names, ends = self._parts
        for number in range(int(np.searchsorted(ends, start, side="right")), len(names)):
            begins = int(ends[number - 1]) if number else 0
            if begins >= end:
                return
            index = self._index(names[number])
            firsts = index["start"].to_numpy() + begins
            row = int(np.searchsorted(firsts, max(start, begins), side="right")) - 1
            while row < len(index) and firsts[row] < end:
                first, tokens = int(firsts[row]), index["tokens"][row]
                shown = range(max(start, first), min(end, first + tokens))
                if shown:
                    place = {"id": index["id"][row], "shard": index["part"][row], "row": index["row"][row]}
                    yield {**place, "offset": shown.start - first, "tokens": len(shown)}
                row += 1

    def text(self, shard: str, row: int) -> str:
        """The text of a curated document by its place."""
        file = self._shard(shard)
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if row < size:
                return self._column(shard, group)[row].as_py()
            row -= size
        raise MarinError(f"{self._curated.path(shard)} has no row {row}; materialize {self._curated.record.name} again")

    @cached_property
    def _parts(self) -> tuple[list[str], np.ndarray]:
        """Names of the parts in the order of the stream, and where each ends, in tokens."""
        ledger = json.loads(self._tokenized.read("train/shard_ledger.json"))
        names = ledger["finished_shards"]
        counts = [ledger["field_counts_by_shard"].get(name, {}).get("input_ids", 0) for name in names]
        return names, np.cumsum(counts, dtype=np.int64)

    @lru_cache(maxsize=_KEPT)  # noqa: B019
    def _index(self, part: str) -> pl.DataFrame:
        return pl.read_parquet(self._tokenized.read(f"index/train/{part}.parquet"))

    @lru_cache(maxsize=_KEPT)  # noqa: B019
    def _shard(self, shard: str) -> pq.ParquetFile:
        return pq.ParquetFile(self._curated.open(shard))

    @lru_cache(maxsize=_KEPT)  # noqa: B019
    def _column(self, shard: str, group: int) -> Any:
        return self._shard(shard).read_row_group(group, columns=["text"])["text"]
