"""Texts of a batch as flat arrays: code points, spans of them (words, lines, paragraphs) and hashes of spans.

Rules and overlaps over words are computed on these arrays, with no Python object per word. Which characters are blank,
letters or word characters is what Python's `str` methods say. What the rules are is not here.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marin_core.data.flat.characters import BLANK, DIGIT, LETTER, WORD, character_classes, character_values
from marin_core.data.flat.hashing import prefix_hashes, span_hashes

# Punctuation that parts the words it joins, that stays at the ends of words, that opens a word, and that counts once
# however often it is repeated.
JOINING, ATTACHED, APOSTROPHES = ([ord(character) for character in text] for text in ("-–—~,:<>=/", "-/\\|@^~", "'’"))
REPEATED = ord(".")
# Longer texts are looked at up to here: a bound on memory that few books reach.
MAX_CHARACTERS = 1 << 23
WordKind = Literal["blank", "punctuation", "word"]

# Two line feeds, so that a span of any kind ends where its document does.
_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class Spans:
    """Pieces of the texts in order: code points `starts[i]:ends[i]`; those of document d are `first[d]:first[d+1]`."""

    starts: np.ndarray
    ends: np.ndarray
    first: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.starts

    def per_document(self, values: np.ndarray) -> np.ndarray:
        """Sum of a value per span, int64, by document."""
        sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        return sums[self.first[1:]] - sums[self.first[:-1]]

    def documents(self) -> np.ndarray:
        """The document of every span, int64."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


class FlatTexts:
    """The code points of some texts, one after the other."""

    def __init__(self, texts: Sequence[str]):
        texts = [text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] for text in texts]
        joined = _SEPARATOR.join([*texts, ""])
        self.codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        self.lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        ends = np.cumsum(self.lengths + len(_SEPARATOR)) - len(_SEPARATOR)
        self.starts, self.ends = ends - self.lengths, ends

    @functools.cached_property
    def classes(self) -> np.ndarray:
        """Class bits of every code point, uint8."""
        return np.take(character_classes(), self.codes)

    def words(self, kind: WordKind) -> Spans:
        """`blank`: runs of anything but blanks. `word`: runs of letters, marks, digits and `_`. `punctuation`: the runs
        of `blank` with their outer punctuation apart except for the dot of initials, cut at joining punctuation, unless
        they are addresses, and before apostrophes within."""
        if kind == "word":
            return self._runs((self.classes & WORD) != 0)
        inked = (self.classes & BLANK) == 0
        return self._runs(inked) if kind == "blank" else self._punctuated(self._runs(inked))

    def _punctuated(self, blank: Spans) -> Spans:
        places = np.flatnonzero((self.classes & (WORD | BLANK)) == 0)
        codes = self.codes[places]
        before, after = self.classes[places - 1], self.classes[places + 1]
        before[places == 0] = BLANK
        around = np.searchsorted(blank.starts, places, side="right") - 1
        inner = self._within(places, around, blank, self.words("word"))
        address = np.zeros(len(blank.starts), bool)
        address[around[self._followed_by(places, "://")]] = True
        joining = ((before & WORD) != 0) & ((after & LETTER) != 0) & np.isin(codes, JOINING)
        joining |= ((before & DIGIT) != 0) & ((after & DIGIT) != 0) & (codes == ord("-"))
        joining &= inner & ~address[around]
        initial = (codes == ord(".")) & ((before & LETTER) != 0)
        initial &= (places < 2) | ((self.classes[places - 2] & WORD) == 0)
        apart = joining | ~(inner | initial | np.isin(codes, ATTACHED))
        again = (self.codes[places - 1] == codes) & (codes == REPEATED) & (places > 0)
        opens = np.zeros(len(self.codes), bool)
        opens[blank.starts] = True
        opens[places[apart] + 1] = True
        opens[places[apart & again & ~joining]] = False
        opens[places[apart & ~(again & ~joining)]] = True
        opens[places[inner & ((after & LETTER) != 0) & np.isin(codes, APOSTROPHES)]] = True
        opens &= (self.classes & BLANK) == 0
        starts = np.flatnonzero(opens)
        pieces = np.diff(np.concatenate([np.searchsorted(starts, blank.starts), [len(starts)]]))
        following = np.concatenate([starts[1:], [len(self.codes)]])[: len(starts)]
        return self._spans(starts, np.minimum(following, np.repeat(blank.ends, pieces)))

    def _followed_by(self, places: np.ndarray, text: str) -> np.ndarray:
        """Whether these characters are at a place."""
        end = len(self.codes) - 1
        return np.all([self.codes[np.minimum(places + at, end)] == ord(c) for at, c in enumerate(text)], axis=0)

    def _within(self, places: np.ndarray, around: np.ndarray, blank: Spans, runs: Spans) -> np.ndarray:
        """Whether a place has a word character before and after it in the run of `blank` that is around it."""
        if not len(places) or not len(runs.starts):
            return np.zeros(len(places), bool)
        first = np.searchsorted(runs.starts, places) - 1
        before = (first >= 0) & (runs.ends[first] > blank.starts[around])
        after = np.minimum(first + 1, len(runs.starts) - 1)
        return before & (runs.starts[after] > places) & (runs.starts[after] < blank.ends[around])

    def lines(self) -> Spans:
        """Runs of anything but line feeds: no empty line is among them."""
        return self._runs(self.codes != ord("\n"))

    def paragraphs(self) -> Spans:
        """Lines that only single line feeds keep apart, together."""
        lines = self.lines()
        opens = np.ones(len(lines.starts), bool)
        opens[1:] = lines.starts[1:] - lines.ends[:-1] > 1
        last = np.concatenate([opens[1:], np.ones(min(1, len(opens)), bool)])
        return self._spans(lines.starts[opens], lines.ends[last])

    def any_of(self, spans: Spans, bits: int) -> np.ndarray:
        """Whether a span has a character with one of the class bits, bool."""
        if not len(spans.starts):
            return np.zeros(0, bool)
        bounds = np.stack([spans.starts, spans.ends], axis=1).ravel()
        # Every document ends in a separator, so that an end is always an index too.
        return (np.bitwise_or.reduceat(self.classes, bounds)[::2] & bits) != 0

    def count(self, bits: int) -> np.ndarray:
        """Characters of each document with one of the class bits, int64."""
        sums = np.concatenate([[0], np.cumsum((self.classes & bits) != 0, dtype=np.int64)])
        return sums[self.ends] - sums[self.starts]

    def occurrences(self, code: int) -> np.ndarray:
        """How often each document has a code point, int64."""
        places = np.flatnonzero(self.codes == code)
        return np.searchsorted(places, self.ends) - np.searchsorted(places, self.starts)

    def runs_of(self, code: int) -> Spans:
        """Runs of one code point other than a line feed."""
        return self._runs(self.codes == code)

    def hashes(self, spans: Spans, *, lower: bool = False) -> np.ndarray:
        """64-bit hash of the characters of every span; with `lower`, of their lower case."""
        prefix = self._lower_prefix if lower else self._prefix
        return span_hashes(prefix, spans.starts, spans.ends)

    @functools.cached_property
    def _prefix(self) -> np.ndarray:
        return prefix_hashes(character_values()[0], self.codes)

    @functools.cached_property
    def _lower_prefix(self) -> np.ndarray:
        return prefix_hashes(character_values()[1], self.codes)

    def _runs(self, inside: np.ndarray) -> Spans:
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        if len(inside) and inside[0]:
            edges = np.concatenate([[0], edges])
        return self._spans(edges[::2], edges[1::2])

    def _spans(self, starts: np.ndarray, ends: np.ndarray) -> Spans:
        return Spans(starts, ends, np.concatenate([np.searchsorted(starts, self.starts), [len(starts)]]))


def text_hash(text: str) -> int:
    """The hash that `FlatTexts.hashes` gives a span of these characters."""
    flat = FlatTexts([text])
    return int(flat.hashes(Spans(flat.starts, flat.ends, np.array([0, 1])))[0])
