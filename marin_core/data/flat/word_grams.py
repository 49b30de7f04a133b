"""Lower-cased words of texts as flat arrays of hashes, and their n-grams."""

import functools
from collections.abc import Sequence

import numpy as np

from marin_core.data.flat.characters import LETTER
from marin_core.data.flat.hashing import mixed, ngram_hashes
from marin_core.data.flat.texts import FlatTexts

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class WordGrams:
    """The words of some texts, runs of letters, marks, digits and `_`, and the n-grams that begin at each word.

    n-grams go on over the ends of lines and paragraphs. Of a very long text the first `MAX_CHARACTERS` are seen.
    """

    def __init__(self, texts: Sequence[str], n: int):
        self.n = n
        self.texts = len(texts)
        self.flat = FlatTexts(texts)
        self.words = self.flat.words("word")
        self.hashes = self.flat.hashes(self.words, lower=True)
        # The text of every word; the n-gram hash at every place and whether all of it is of one text.
        self.documents = self.words.documents()
        self.grams = ngram_hashes(self.hashes, n)
        self.whole = self.documents[n - 1 :] == self.documents[: len(self.grams)]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Words of every text."""
        return np.bincount(self.documents, minlength=self.texts)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """n-grams of every text."""
        return np.maximum(self.lengths - self.n + 1, 0)

    def text_sequences(self) -> tuple[np.ndarray, np.ndarray]:
        """(text, hash of all its words) of the texts that are too short for an n-gram but not empty."""
        texts = np.flatnonzero((self.lengths > 0) & (self.lengths < self.n))
        return texts, self._sequence_hashes(np.searchsorted(self.documents, texts), self.lengths[texts])

    def paragraph_sequences(self) -> tuple[np.ndarray, np.ndarray]:
        """(text, hash of all its words) of the paragraphs that are too short for an n-gram but not empty."""
        paragraphs = self.flat.paragraphs()
        begins = np.searchsorted(self.words.starts, paragraphs.starts)
        lengths = np.searchsorted(self.words.starts, paragraphs.ends) - begins
        short = (lengths > 0) & (lengths < self.n)
        return self.documents[begins[short]], self._sequence_hashes(begins[short], lengths[short])

    def lettered_words(self) -> np.ndarray:
        """Whether a word has two characters and a letter among them, bool by word."""
        return self.flat.any_of(self.words, LETTER) & (self.words.lengths > 1)

    def distinct_lettered(self) -> np.ndarray:
        """Different words of every n-gram that have two characters and a letter, int64 by n-gram."""
        lettered, count = self.lettered_words(), len(self.grams)
        distinct = np.zeros(count, np.int64)
        for offset in range(self.n):
            word = self.hashes[offset : offset + count]
            new = lettered[offset : offset + count].copy()
            for before in range(offset):
                new &= self.hashes[before : before + count] != word
            distinct += new
        return distinct

    def _sequence_hashes(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        sums = lengths.astype(np.uint64)
        for offset in range(self.n - 1):
            longer = lengths > offset
            sums[longer] = sums[longer] * _FACTOR + self.hashes[begins[longer] + offset]
        return mixed(sums)
