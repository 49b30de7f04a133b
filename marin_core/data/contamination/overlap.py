"""Overlap of documents with evaluation items: the rules, the index of the items, and the matches of some documents.

How the index is made is in `overlap_index.py`; which documents are looked at and what is written is not here.
"""

import functools
from dataclasses import dataclass, fields
from typing import IO, Any, Self

import numpy as np

from marin_core.data.contamination.config import OverlapRules
from marin_core.data.flat.word_grams import WordGrams


def common_above(limits: tuple[int, float], population: int) -> int:
    """An n-gram in more than so many members of a population is common."""
    at_least, share = limits
    return int(max(5, min(population / 10, max(at_least, population * share))))


@dataclass(frozen=True)
class OverlapIndex:
    """The countable n-grams of every evaluation item, and the items that are too short for one.

    `keys` are sorted n-gram hashes; the items that have key k are `postings[first[k]:first[k + 1]]`. `totals` are the
    n-grams of each item in the index, `shares` the share of the item's n-grams that they are. `short_keys` are sorted
    hashes of the words of `short_items`; of those with `short_whole` the whole document has to be equal.
    """

    names: np.ndarray
    evaluations: np.ndarray
    ids: np.ndarray
    keys: np.ndarray
    first: np.ndarray
    postings: np.ndarray
    totals: np.ndarray
    shares: np.ndarray
    short_keys: np.ndarray
    short_items: np.ndarray
    short_whole: np.ndarray

    def save(self, file: IO[bytes]) -> None:
        np.savez(file, **{each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def load(cls, file: IO[bytes]) -> Self:
        with np.load(file, allow_pickle=False) as arrays:
            return cls(**{each.name: arrays[each.name] for each in fields(cls)})

    @functools.cached_property
    def _filter(self) -> tuple[np.ndarray, np.uint64]:
        """A table by leading bits that most n-grams which are no key fail, and the shift to them."""
        bits = min(27, max(16, (8 * len(self.keys)).bit_length()))
        shift = np.uint64(64 - bits)
        table = np.zeros(1 << bits, bool)
        table[self.keys >> shift] = True
        return table, shift

    def keys_of(self, grams: WordGrams) -> tuple[np.ndarray, np.ndarray]:
        """(text, key) for every distinct n-gram of the texts that is a key, sorted."""
        if not len(self.keys) or not len(grams.grams):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        table, shift = self._filter
        places = np.flatnonzero(table[grams.grams >> shift] & grams.whole)
        found = grams.grams[places]
        keys = np.minimum(np.searchsorted(self.keys, found), len(self.keys) - 1)
        hit = self.keys[keys] == found
        pairs = np.unique(grams.documents[places[hit]] * len(self.keys) + keys[hit])
        return pairs // len(self.keys), pairs % len(self.keys)

    def matches(self, grams: WordGrams, rules: OverlapRules) -> "Matches":
        """The best match of every text that contains an item."""
        texts, keys = self.keys_of(grams)
        sizes = self.first[keys + 1] - self.first[keys]
        owners = np.repeat(texts, sizes)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        items = self.postings[np.repeat(self.first[keys], sizes) + within]
        pairs, matched = np.unique(owners * len(self.ids) + items, return_counts=True)
        texts, items = pairs // max(1, len(self.ids)), pairs % max(1, len(self.ids))
        of_item = matched / self.totals[items]
        of_text = matched / self.shares[items] / np.maximum(grams.counts[texts], 1)
        overlap = np.minimum(1.0, np.maximum(of_item, of_text))
        enough = matched >= np.minimum(rules.min_matched, self.totals[items])
        found = Matches(texts, items, overlap, matched).where(enough & (overlap >= rules.min_overlap))
        return found.and_others(self._short_matches(grams)).best()

    def short_places(self, grams: WordGrams) -> tuple[np.ndarray, np.ndarray]:
        """(text, place among the short items) of every short item that a text repeats, sorted."""
        found = [np.zeros(0, np.int64)]
        for (texts, hashes), whole in ((grams.text_sequences(), True), (grams.paragraph_sequences(), False)):
            if len(self.short_keys):
                places = np.minimum(np.searchsorted(self.short_keys, hashes), len(self.short_keys) - 1)
                hit = (self.short_keys[places] == hashes) & (self.short_whole[places] <= whole)
                found.append(texts[hit] * len(self.short_keys) + places[hit])
        pairs = np.unique(np.concatenate(found))
        return pairs // max(1, len(self.short_keys)), pairs % max(1, len(self.short_keys))

    def _short_matches(self, grams: WordGrams) -> "Matches":
        texts, places = self.short_places(grams)
        ones = np.ones(len(texts), np.int64)
        return Matches(texts, self.short_items[places], ones.astype(float), ones)


@dataclass(frozen=True)
class Matches:
    """Texts with the items that they contain."""

    texts: np.ndarray
    items: np.ndarray
    overlap: np.ndarray
    matched: np.ndarray

    def where(self, chosen: Any) -> "Matches":
        return Matches(self.texts[chosen], self.items[chosen], self.overlap[chosen], self.matched[chosen])

    def and_others(self, others: "Matches") -> "Matches":
        return Matches(*(np.concatenate([getattr(self, f.name), getattr(others, f.name)]) for f in fields(Matches)))

    def best(self) -> "Matches":
        """Of every text the match with the highest overlap, then the most n-grams, then the first item."""
        order = np.lexsort((self.items, -self.matched, -self.overlap, self.texts))
        ordered = self.where(order)
        return ordered.where(np.unique(ordered.texts, return_index=True)[1])
