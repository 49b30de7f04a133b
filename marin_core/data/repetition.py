"""Repetition rules: repeated paragraphs, lines and word n-grams of a document.

An upper bound on every n-gram share, from counts of hash buckets, clears most documents at once; only the others are
counted exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from marin_core.data.flat_text import FlatTexts, Spans, mixed, ngram_hashes


@dataclass(frozen=True)
class RepetitionRules:
    """The repetition rules of Gopher, with the thresholds of its table A1 (Rae et al. 2021, arXiv:2112.11446).

    Shares of characters are of the whole text. The most frequent n-gram counts with blanks between its words and, among
    equally frequent ones, is the first. Repeated n-grams are counted from left to right without overlap.
    """

    max_duplicate_paragraphs: float = 0.3
    max_duplicate_paragraph_characters: float = 0.2
    max_duplicate_lines: float = 0.3
    max_duplicate_line_characters: float = 0.2
    # (n, share), in the order in which they are tried.
    top_ngrams: tuple[tuple[int, float], ...] = ((2, 0.2), (3, 0.18), (4, 0.16))
    duplicate_ngrams: tuple[tuple[int, float], ...] = (
        (5, 0.15),
        (6, 0.14),
        (7, 0.13),
        (8, 0.12),
        (9, 0.11),
        (10, 0.10),
    )


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
    grams = _Grams(words, hashes, kept.copy())
    for n, share in rules.top_ngrams:
        doubtful = grams.top_bound(n) / size > share
        failed = [
            grams.top_characters(document, n) / size[document] > share for document in np.flatnonzero(doubtful).tolist()
        ]
        fail(_scattered(doubtful, failed), f"top_{n}_gram")
    doubtful = kept.copy()
    for n, share in rules.duplicate_ngrams:
        grams = _Grams(words, hashes, doubtful)
        bound, candidates = grams.repeated_bound(n)
        exceeds = bound / size > share
        failed = [
            grams.repeated_characters(document, n, candidates) / size[document] > share
            for document in np.flatnonzero(exceeds).tolist()
        ]
        fail(_scattered(exceeds, failed), f"duplicate_{n}_grams")
        # Where a longer n-gram is repeated, this one is: what is far below every limit stays there.
        doubtful = kept & (bound / size > min(share for _, share in rules.duplicate_ngrams))


class _Grams:
    """Word n-grams of the documents that are still to be judged."""

    def __init__(self, words: Spans, hashes: np.ndarray, kept: np.ndarray):
        mine = np.repeat(kept, np.diff(words.first))
        self.kept = kept
        self.hashes = hashes[mine]
        self.lengths = words.lengths[mine]
        self.documents = words.documents()[mine]
        self.first = np.concatenate([[0], np.cumsum(np.where(kept, np.diff(words.first), 0))])
        self.characters = np.concatenate([[0], np.cumsum(self.lengths)])
        # Equal n-grams of two documents are not repetitions.
        self.salts = mixed(self.documents.astype(np.uint64) + np.uint64(1))

    def top_bound(self, n: int) -> np.ndarray:
        """At least the characters of the most frequent n-gram, by document."""
        counts, whole = self._bucket_counts(n, 1)
        most = counts * (self._gram_lengths(n) + n - 1) * whole
        bound = np.zeros(len(self.kept), np.int64)
        # Grams of a document start at its words; a document without a gram of its own reads a zero.
        used = np.flatnonzero(np.diff(self.first) >= n)
        if len(used):
            bound[used] = np.maximum.reduceat(most, self.first[used])
        return bound

    def repeated_bound(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """At least the characters in repeated n-grams, by document; whether an n-gram may occur again, by its place."""
        counts, whole = self._bucket_counts(n, 3)
        candidates = (counts > 1) & whole
        covered = np.zeros(len(self.hashes), bool)
        for offset in range(n):
            covered[offset : offset + len(candidates)] |= candidates
        sums = np.concatenate([[0], np.cumsum(self.lengths * covered)])
        return sums[self.first[1:]] - sums[self.first[:-1]], candidates

    def top_characters(self, document: int, n: int) -> int:
        """Characters of the most frequent n-gram: its length times its count, the first of those most frequent."""
        begin, end = self.first[document], self.first[document + 1]
        _, firsts, counts = np.unique(ngram_hashes(self.hashes[begin:end], n), return_index=True, return_counts=True)
        top = int(firsts[counts == counts.max()].min())
        length = self.characters[begin + top + n] - self.characters[begin + top] + n - 1
        return int(length * counts.max())

    def repeated_characters(self, document: int, n: int, candidates: np.ndarray) -> int:
        """Characters of n-grams that occurred before, counted from left to right; a repeated one is skipped whole.

        `candidates` are the places of at least every n-gram that occurs more than once.
        """
        begin, end = self.first[document], self.first[document + 1]
        places = np.flatnonzero(candidates[begin : end - n + 1])
        grams = ngram_hashes(self.hashes[begin:end], n)[places]
        lengths = self._gram_lengths(n)[begin:end][places]
        seen: set[int] = set()
        repeated, free = 0, 0
        for place, gram, length in zip(places.tolist(), grams.tolist(), lengths.tolist(), strict=True):
            if place < free:
                continue
            if gram in seen:
                repeated += length
                free = place + n
            else:
                seen.add(gram)
        return repeated

    def _gram_lengths(self, n: int) -> np.ndarray:
        return self.characters[n:] - self.characters[:-n]

    def _bucket_counts(self, n: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """At least how often each n-gram occurs in its document; whether it lies in one document."""
        grams = ngram_hashes(self.hashes, n)
        if not len(grams):
            return np.zeros(0, np.int64), np.zeros(0, bool)
        whole = self.documents[n - 1 :] == self.documents[: len(grams)]
        grams ^= self.salts[: len(grams)]
        counts = np.ones(len(grams), np.int64)
        places = np.arange(len(grams))
        # Every round parts most of the n-grams that only shared a bucket.
        for _ in range(rounds):
            grams = mixed(grams)
            buckets = (grams >> np.uint64(64 - max(10, (4 * len(grams)).bit_length()))).astype(np.int64)
            found = np.bincount(buckets)[buckets]
            counts[places] = found
            again = found > 1
            grams, places = grams[again], places[again]
            if not len(grams):
                break
        return counts, whole


def _apart(hashes: np.ndarray, documents: np.ndarray) -> np.ndarray:
    return mixed(hashes ^ mixed(documents.astype(np.uint64) + np.uint64(1)))


def _repeats(hashes: np.ndarray) -> np.ndarray:
    """Whether the same hash came before, bool."""
    again = np.ones(len(hashes), bool)
    again[np.unique(hashes, return_index=True)[1]] = False
    return again


def _scattered(where: np.ndarray, values: list[bool]) -> np.ndarray:
    result = np.zeros(len(where), bool)
    result[where] = values
    return result
