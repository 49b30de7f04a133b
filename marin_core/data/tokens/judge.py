"""Which documents of a shard the reference tokenizer encodes too, and whether it gives the same rows.

The sample is a function of the shard's documents alone: a few by the tail of their id, which says nothing about where
they lie, the longest that is not too long, and any that spell a special token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash

from marin_core.data.tokens.encoder import Rows
from marin_core.errors import MarinError

MAX_DOCUMENTS = 16
# The reference is some fifty times slower: a thousandth of the text costs it a twentieth of the shard's time.
SHARE, MIN_BYTES, MAX_BYTES = 1e-3, 16_000, 64_000
# Of a longer document the beginning is judged.
MAX_DOCUMENT_BYTES = 8_000
_SPELLED = 4


@dataclass(frozen=True)
class Sampled:
    """A document of a split of the shard: its row there, its text, what was written for it, and the digest of that.

    Of a long document there is only the beginning of the text, and not what was written.
    """

    split: str
    row: int
    id: str
    text: str
    written: Rows | None
    digest: str
    size: int

    @property
    def rank(self) -> str:
        """Uniform, and independent of the order of ids."""
        return self.id[16:]


class Sample:
    """Chosen while the documents of a shard go by, in bounded memory. `column` is what is encoded."""

    def __init__(self, column: str, special: Sequence[str]):
        self._column, self._special = column, list(special)
        self._by_rank: list[Sampled] = []
        self._spelled: list[Sampled] = []
        self._longest: Sampled | None = None
        self._bytes = 0

    def offer(self, split: str, first: int, documents: pl.DataFrame, rows: Rows) -> None:
        """Documents of a split in order, the first of which is its row `first`, and their encoded rows."""
        sizes = documents[self._column].str.len_bytes().to_numpy().astype(np.int64)
        ranks = documents["id"].str.slice(16)
        self._bytes += int(sizes.sum())

        def take(number: int) -> Sampled:
            row, size = rows.row(number), int(sizes[number])
            place = split, first + number, documents["id"][number]
            digest = row_digest(row.values)
            if size <= MAX_DOCUMENT_BYTES:
                return Sampled(*place, documents[self._column][number], row, digest, size)
            beginning = documents[self._column].slice(number, 1).str.head(MAX_DOCUMENT_BYTES // 4)[0]
            return Sampled(*place, beginning, None, digest, size)

        full = len(self._by_rank) == MAX_DOCUMENTS
        better = (ranks < self._by_rank[-1].rank).arg_true() if full else ranks.arg_sort()[:MAX_DOCUMENTS]
        ranked = self._by_rank + [take(number) for number in better]
        self._by_rank = sorted(ranked, key=lambda sampled: sampled.rank)[:MAX_DOCUMENTS]
        bounded = np.where(sizes <= MAX_DOCUMENT_BYTES, sizes, -1)
        if len(bounded) and bounded.max() > (self._longest.size if self._longest else 0):
            self._longest = take(int(bounded.argmax()))
        if self._special and len(self._spelled) < _SPELLED:
            spelled = documents[self._column].str.contains_any(self._special).to_numpy() & (bounded >= 0)
            self._spelled += [take(int(number)) for number in np.flatnonzero(spelled)[: _SPELLED - len(self._spelled)]]

    def documents(self) -> list[Sampled]:
        """The sample, by place in the shard."""
        budget = min(max(self._bytes * SHARE, MIN_BYTES), MAX_BYTES)
        chosen: dict[tuple[str, int], Sampled] = {}
        for sampled in [*([self._longest] if self._longest else []), *self._spelled, *self._by_rank]:
            size = min(sampled.size, MAX_DOCUMENT_BYTES)
            if size <= budget and len(chosen) < MAX_DOCUMENTS and (sampled.split, sampled.row) not in chosen:
                chosen[sampled.split, sampled.row] = sampled
                budget -= size
        return [chosen[place] for place in sorted(chosen)]


def judge(
    where: str,
    sample: Sequence[Sampled],
    encode: Callable[[pl.Series], Rows],
    reference: Callable[[pl.Series], Rows],
) -> None:
    """Compare what was written for a sample, and what `encode` gives for the beginnings of its long texts, with what
    `reference` gives.

    Raises:
        MarinError: names the shard, the first document that differs, and the position.
    """
    for sampled in sample:
        text = pl.Series([sampled.text])
        found = sampled.written or encode(text)
        for field, right in reference(text).values.items():
            _compare(f"{where}: document {sampled.id}", field, found.values[field], right)


def row_digest(values: Mapping[str, np.ndarray]) -> str:
    """16 hex digits of a row's fields."""
    hashed = xxhash.xxh3_64()
    for field in sorted(values):
        hashed.update(np.ascontiguousarray(values[field], np.int32))
    return hashed.hexdigest()


def _compare(document: str, field: str, found: np.ndarray, right: np.ndarray) -> None:
    if np.array_equal(found, right):
        return
    shorter = min(len(found), len(right))
    differing = np.flatnonzero(found[:shorter] != right[:shorter])
    position = int(differing[0]) if len(differing) else shorter
    values = [str(row[position]) if position < len(row) else "nothing" for row in (found, right)]
    raise MarinError(
        f"{document} has {values[0]} at position {position} of {field}, by the reference tokenizer {values[1]}; "
        f"pin a version of gigatoken without the fault, or another tokenizer"
    )
