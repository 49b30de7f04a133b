"""Texts of a batch as flat arrays: code points, spans of them (words, lines, paragraphs) and hashes of spans.

Rules and overlaps over words are computed on these arrays, with no Python object per word. Which characters are blank,
letters or word characters is what Python's `str` methods say. What the rules are is not here.
"""

import functools
import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

# Bits of a character's class.
BLANK, LETTER, DIGIT, UNDERSCORE, MARK = 1, 2, 4, 8, 16
ALPHANUMERIC = LETTER | DIGIT
WORD = ALPHANUMERIC | UNDERSCORE | MARK
# Punctuation that parts the words it joins, that stays at the ends of words, that opens a word, and that counts once
# however often it is repeated.
JOINING, ATTACHED, APOSTROPHES = ([ord(character) for character in text] for text in ("-–—~,:<>=/", "-/\\|@^~", "'’"))
REPEATED = ord(".")
# Longer texts are looked at up to here: a bound on memory that few books reach.
MAX_CHARACTERS = 1 << 23
WordKind = Literal["blank", "punctuation", "word"]

# Two line feeds, so that a span of any kind ends where its document does.
_SEPARATOR = "\n\n"
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_BLOCK = 1 << 14


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
        return np.take(_classes(), self.codes)

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
        low, high = _powers(_INVERSE)
        sums = prefix[spans.ends] - prefix[spans.starts]
        sums *= low[spans.starts % _BLOCK]
        sums *= high[spans.starts // _BLOCK]
        return mixed(sums)

    @functools.cached_property
    def _prefix(self) -> np.ndarray:
        return _prefix_hash(_values()[0], self.codes)

    @functools.cached_property
    def _lower_prefix(self) -> np.ndarray:
        return _prefix_hash(_values()[1], self.codes)

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


def ngram_hashes(hashes: np.ndarray, n: int) -> np.ndarray:
    """Hash of every n neighbours, uint64 of length max(0, len - n + 1)."""
    count = max(0, len(hashes) - n + 1)
    grams = np.zeros(count, np.uint64)
    for offset in range(n):
        grams *= np.uint64(_BASE)
        grams += hashes[offset : offset + count]
    return mixed(grams)


def mixed(values: np.ndarray) -> np.ndarray:
    """Bits spread over the whole word."""
    values = values ^ (values >> np.uint64(32))
    values *= np.uint64(0xD6E8FEB86659FD93)
    values ^= values >> np.uint64(32)
    return values


def _prefix_hash(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """h[i] = sum of value(code j) * base^j over j < i, modulo 2^64."""
    prefix = np.empty(len(codes) + 1, np.uint64)
    prefix[0] = 0
    low, high = _powers(_BASE)
    for block, start in enumerate(range(0, len(codes), _BLOCK)):
        terms = np.take(values, codes[start : start + _BLOCK])
        terms *= low[: len(terms)]
        terms *= high[block]
        terms[:1] += prefix[start : start + 1]
        np.cumsum(terms, out=prefix[start + 1 : start + 1 + len(terms)])
    return prefix


@functools.lru_cache(maxsize=2)
def _powers(base: int) -> tuple[np.ndarray, np.ndarray]:
    """(base^i, base^(i * _BLOCK)) modulo 2^64: the product of one of each is any power that a batch needs."""
    low = _cumulative_powers(base, _BLOCK)
    return low, _cumulative_powers(pow(base, _BLOCK, 1 << 64), 1 << 16)


def _cumulative_powers(base: int, count: int) -> np.ndarray:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


@functools.lru_cache(maxsize=1)
def _classes() -> np.ndarray:
    """Class bits of every code point."""
    table = np.zeros(0x110000, np.uint8)
    for code in _assigned():
        character = chr(code)
        if character.isalpha():
            table[code] = LETTER
        elif character.isalnum():
            table[code] = DIGIT
        elif character.isspace():
            table[code] = BLANK
        elif unicodedata.category(character)[0] == "M":
            table[code] = MARK
    table[ord("_")] = UNDERSCORE
    return table


@functools.lru_cache(maxsize=1)
def _values() -> tuple[np.ndarray, np.ndarray]:
    """A fixed pseudo-random 64-bit value of every code point, and that of its lower case."""
    codes = np.arange(1, 0x110001, dtype=np.uint64)
    values = mixed(mixed(codes * np.uint64(_BASE)) + np.uint64(1))
    # The few characters with a lower case of two stay as they are: a hash is of as many characters as its span.
    lowered = values.copy()
    for code in _assigned():
        if len(lower := chr(code).lower()) == 1:
            lowered[code] = values[ord(lower)]
    return values, lowered


def _assigned() -> Iterator[int]:
    """Code points, without the planes that hold nothing or private use."""
    return itertools.chain(range(0x40000), range(0xE0000, 0xE1000))
