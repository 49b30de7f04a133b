"""Repetition rules: repeated paragraphs, lines and word n-grams of a document.

An upper bound on every n-gram share, from counts of hash buckets, clears most documents at once; only the others are
counted exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from marin_core.data.flat.hashing import mixed, ngram_hashes
from marin_core.data.flat.texts import FlatTexts, Spans
from marin_core.data.quality.config import RepetitionRules

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 3


def judge(
    rules: RepetitionRules,
    flat: FlatTexts,
    words: Spans,
    hashes: np.ndarray,
    kept: np.ndarray,
    fail: Callable[[np.ndarray, str], None],
) -> None:
    """Call `fail` with the documents (bool by document) that each rule fails; `kept` are those still to be judged."""
    size = np.maximum(flat.lengths, 1)
    for spans, name, max_share, max_characters in (
        (flat.paragraphs(), "paragraphs", rules.max_duplicate_paragraphs, rules.max_duplicate_paragraph_characters),
        (flat.lines(), "lines", rules.max_duplicate_lines, rules.max_duplicate_line_characters),
    ):
        again = _repeats(_apart(flat.hashes(spans), spans.documents()))
        share = spans.per_document(again) / np.maximum(np.diff(spans.first), 1)
        fail(share > max_share, f"duplicate_{name}")
        fail(spans.per_document(spans.lengths * again) / size > max_characters, f"characters_in_duplicate_{name}")
    _judge_ngrams(rules, size, words, hashes, kept, fail)


def _judge_ngrams(
    rules: RepetitionRules,
    size: np.ndarray,
    words: Spans,
    hashes: np.ndarray,
    kept: np.ndarray,
    fail: Callable[[np.ndarray, str], None],
) -> None:
    grams = _Grams.of(words, hashes, kept)
    for n, share in rules.top_ngrams:
        grams.count(n)
        doubtful = grams.top_bound() / size > share
        failed = [grams.top_characters(document) / size[document] > share for document in _where(doubtful)]
        fail(_scattered(doubtful, failed), f"top_{n}_gram")
    least = min((share for _, share in rules.duplicate_ngrams), default=1.0)
    for n, share in rules.duplicate_ngrams:
        grams = grams.only(kept)
        grams.count(n)
        bound = grams.repeated_bound() / size
        failed = [grams.repeated_characters(document) / size[document] > share for document in _where(bound > share)]
        fail(_scattered(bound > share, failed), f"duplicate_{n}_grams")
        # Where a longer n-gram is repeated, this one is: what is below every limit stays there.
        grams = grams.only(bound > least)


@dataclass
class _Grams:
    """Word n-grams of the documents that are still to be judged.

    `counts` is, at every word, at least how often the n-gram that begins there occurs in its document, and 0 where a
    document has no n-gram left. n only grows: an n-gram occurs at most as often as the shorter ones in it.
    """

    sizes: np.ndarray
    documents: np.ndarray
    hashes: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    n: int = 1

    @classmethod
    def of(cls, words: Spans, hashes: np.ndarray, kept: np.ndarray) -> Self:
        sizes = np.diff(words.first)
        return cls(sizes, words.documents(), hashes, words.lengths, np.repeat(sizes, sizes)).only(kept)

    def __post_init__(self) -> None:
        self.first = np.concatenate([[0], np.cumsum(self.sizes)])
        self.characters = np.concatenate([[0], np.cumsum(self.lengths)])

    def only(self, kept: np.ndarray) -> Self:
        """Those of some documents."""
        mine = np.repeat(kept, self.sizes)
        return replace(
            self,
            sizes=np.where(kept, self.sizes, 0),
            documents=self.documents[mine],
            hashes=self.hashes[mine],
            lengths=self.lengths[mine],
            counts=self.counts[mine],
        )

    def count(self, n: int) -> None:
        """Go on from the counts of shorter n-grams to those of n."""
        upper = self.counts[: max(0, len(self.counts) - n + self.n)].copy()
        for offset in range(1, n - self.n + 1):
            np.minimum(upper, self.counts[offset : offset + len(upper)], out=upper)
        places = max(0, len(self.documents) - n + 1)
        upper[:places][self.documents[n - 1 :] != self.documents[:places]] = 0
        self.counts = np.zeros_like(self.counts)
        self.counts[: len(upper)] = np.minimum(upper, 1)
        places = np.flatnonzero(upper > 1)
        # Equal n-grams of two documents are not repetitions.
        grams = mixed(self.documents[places].astype(np.uint64) + np.uint64(1))
        for offset in range(n):
            grams = grams * _FACTOR + self.hashes[places + offset]
        self.n = n
        # Every round parts most of the n-grams that only share a bucket.
        for _ in range(_ROUNDS):
            grams = mixed(grams)
            buckets = (grams >> np.uint64(64 - max(10, (4 * len(grams)).bit_length()))).astype(np.int64)
            found = np.bincount(buckets)[buckets] if len(buckets) else buckets
            self.counts[places] = found
            grams, places = grams[found > 1], places[found > 1]

    def top_bound(self) -> np.ndarray:
        """At least the characters of the most frequent n-gram, by document."""
        count = max(0, len(self.counts) - self.n + 1)
        most = self.counts[:count] * (self.characters[self.n :] - self.characters[: -self.n] + self.n - 1)[:count]
        bound = np.zeros(len(self.sizes), np.int64)
        used = np.flatnonzero(self.sizes >= self.n)
        if len(used):
            bound[used] = np.maximum.reduceat(most, self.first[used])
        return bound

    def repeated_bound(self) -> np.ndarray:
        """At least the characters in repeated n-grams, by document."""
        repeated = self.counts > 1
        covered = repeated.copy()
        for offset in range(1, self.n):
            covered[offset:] |= repeated[:-offset]
        sums = np.concatenate([[0], np.cumsum(self.lengths * covered)])
        return sums[self.first[1:]] - sums[self.first[:-1]]

    def top_characters(self, document: int) -> int:
        """Characters of the most frequent n-gram: its length times its count, the first of those most frequent."""
        begin, end = self.first[document], self.first[document + 1]
        grams = ngram_hashes(self.hashes[begin:end], self.n)
        _, firsts, counts = np.unique(grams, return_index=True, return_counts=True)
        top = begin + int(firsts[counts == counts.max()].min())
        return int((self.characters[top + self.n] - self.characters[top] + self.n - 1) * counts.max())

    def repeated_characters(self, document: int) -> int:
        """Characters of n-grams that occurred before, counted from left to right; a repeated one is skipped whole."""
        begin, end = self.first[document], self.first[document + 1]
        places = np.flatnonzero(self.counts[begin:end] > 1)
        grams = ngram_hashes(self.hashes[begin:end], self.n)[places]
        lengths = self.characters[begin + places + self.n] - self.characters[begin + places]
        seen: set[int] = set()
        repeated, free = 0, 0
        for place, gram, length in zip(places.tolist(), grams.tolist(), lengths.tolist(), strict=True):
            if place < free:
                continue
            if gram in seen:
                repeated += length
                free = place + self.n
            else:
                seen.add(gram)
        return repeated


def _apart(hashes: np.ndarray, documents: np.ndarray) -> np.ndarray:
    return mixed(hashes ^ mixed(documents.astype(np.uint64) + np.uint64(1)))


def _repeats(hashes: np.ndarray) -> np.ndarray:
    """Whether the same hash came before, bool."""
    again = np.ones(len(hashes), bool)
    again[np.unique(hashes, return_index=True)[1]] = False
    return again


def _where(chosen: np.ndarray) -> list[int]:
    return np.flatnonzero(chosen).tolist()


def _scattered(where: np.ndarray, values: list[bool]) -> np.ndarray:
    result = np.zeros(len(where), bool)
    result[where] = values
    return result
