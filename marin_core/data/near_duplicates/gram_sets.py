"""The sets of distinct n-grams of many documents, and how much of one set lies in another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from marin_core.data.flat.arrays import Array, distinct, offsets_of, ranges
from marin_core.data.flat.ngrams import Grams, batches, gram_hashes

# N-grams compared at a time.
COMPARED = 4_000_000


@dataclass(frozen=True)
class GramSets:
    """Hashes of the distinct n-grams of documents: uint32, ascending in each document, in one flat array with offsets.

    32 bits suffice since sets are compared two at a time: of a thousand n-grams that another thousand lacks, one agrees
    by chance in every 4,000 comparisons.
    """

    grams: Array
    offsets: Array

    @property
    def sizes(self) -> Array:
        return np.diff(self.offsets)

    def owners(self) -> Array:
        """uint64: the document of each n-gram."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.uint64), self.sizes)

    def packed(self) -> Array:
        """uint64: document and n-gram in one number."""
        return self.owners() << np.uint64(32) | self.grams

    def take(self, documents: Array) -> "GramSets":
        sizes = self.sizes[documents]
        return GramSets(self.grams[ranges(self.offsets[documents], sizes)], offsets_of(sizes))

    def slice(self, start: int, stop: int) -> "GramSets":
        offsets = self.offsets[start : stop + 1]
        return GramSets(self.grams[offsets[0] : offsets[-1]], offsets - offsets[0])

    @staticmethod
    def joined(parts: Sequence["GramSets"]) -> "GramSets":
        grams = np.concatenate([np.zeros(0, np.uint32), *(part.grams for part in parts)])
        return GramSets(grams, offsets_of(np.concatenate([np.zeros(0, np.int64), *(part.sizes for part in parts)])))

    def to_arrow(self) -> pa.LargeListArray:
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.grams))

    @staticmethod
    def from_arrow(lists: pa.LargeListArray) -> "GramSets":
        offsets = lists.offsets.to_numpy()
        return GramSets(lists.flatten().to_numpy(), offsets - offsets[0])


def gram_sets(texts: pl.Series, grams: Grams) -> GramSets:
    """The distinct n-grams of texts. Memory: 4 bytes a word, and about 60 bytes a character of the longest text."""
    found = []
    for part in batches(texts):
        hashes, offsets = gram_hashes(texts[part], grams)
        owners = np.repeat(np.arange(len(offsets) - 1, dtype=np.uint64), np.diff(offsets))
        packed = distinct(owners << np.uint64(32) | hashes >> np.uint64(32))
        sizes = np.bincount((packed >> np.uint64(32)).astype(np.intp), minlength=len(offsets) - 1)
        found.append(GramSets(packed.astype(np.uint32), offsets_of(sizes)))
    return GramSets.joined(found)


def among(grams: Array, some: Array) -> Array:
    """Whether each n-gram is one of `some`, which are ascending."""
    if len(some) == 0:
        return np.zeros(len(grams), dtype=bool)
    return some[np.minimum(np.searchsorted(some, grams), len(some) - 1)] == grams


def overlaps(pairs: Array, sets: GramSets, common: Array) -> tuple[Array, Array]:
    """int64[pairs] each: the n-grams that a pair's documents share, and those of them that are not in `common`."""
    counts = np.zeros((2, len(pairs)), np.int64)
    cost = offsets_of(sets.sizes[pairs].sum(axis=1))
    edges = distinct(np.searchsorted(cost, np.arange(0, max(1, int(cost[-1])), COMPARED)))
    for start, stop in zip(edges, [*edges[1:], len(pairs)], strict=True):
        sides = [sets.take(pairs[start:stop, side]).packed() for side in (0, 1)]
        both = np.sort(np.concatenate(sides), kind="stable")  # which merges, since each side is ascending
        shared = both[1:][both[1:] == both[:-1]]
        rare = shared[~among((shared & np.uint64(0xFFFFFFFF)).astype(np.uint32), common)]
        for row, found in enumerate((shared, rare)):
            of_pair = (found >> np.uint64(32)).astype(np.int64)
            counts[row, start:stop] = np.bincount(of_pair, minlength=stop - start)
    return counts[0], counts[1]
