"""Texts as hashes of their n-grams: cleaned code points, units (characters or words), n-grams as flat arrays.

Many documents lie in one flat array with offsets (`documents + 1` of them), so that no Python object is made per word.
What the hashes are good for is not here but in `near_duplicates/`.
"""

import string
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
import polars as pl

from marin_core.data.flat.arrays import Array, offsets_of
from marin_core.data.flat.hashing import mixed

# What blanks and characters that go become; neither is a character that stays. A blank adds nothing to a word's sum.
BLANK, _DROPPED, _UNKNOWN = 0, 1, 0xFFFFFFFF
_MULTIPLIER = 0x9E3779B97F4A7C15
# Scripts that write words without blanks: each character is a word.
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x10FFFF))
# Elements that are worked on while they are in the processor's cache.
_CHUNK = 1 << 15


@dataclass(frozen=True)
class Cleaning:
    """Lower case and single blanks; what becomes of punctuation and of digits."""

    punctuation: Literal["removed", "blank"] = "removed"
    digits: Literal["kept", "zero"] = "kept"


@dataclass(frozen=True)
class Grams:
    """How a text is cut up: `n` consecutive units of its first `text_cap` characters."""

    n: int
    unit: Literal["characters", "words"]
    text_cap: int
    cleaning: Cleaning = field(default_factory=Cleaning)


def batches(texts: pl.Series, characters: int = 1 << 18) -> Iterator[slice]:
    """Ranges of documents of at most about `characters` together; a longer document is alone."""
    sizes = texts.str.len_chars().to_numpy()
    start, held = 0, 0
    for position, size in enumerate(sizes.tolist()):
        if position > start and held + size > characters:
            yield slice(start, position)
            start, held = position, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def gram_hashes(texts: pl.Series, grams: Grams) -> tuple[Array, Array]:
    """64-bit hashes of the n-grams of each text, in order and with repetitions, and offsets of the texts.

    A text of fewer than n units has none. Memory: about 60 bytes a character.
    """
    texts = texts.str.slice(0, grams.text_cap)
    if grams.unit == "words":
        units, offsets = _word_hashes(*_mapped(texts, grams.cleaning))
    else:
        codes, offsets = clean_codes(texts, grams.cleaning)
        units = codes.astype(np.uint64)
    return _windows(units, offsets, grams.n)


def clean_codes(texts: pl.Series, cleaning: Cleaning) -> tuple[Array, Array]:
    """Code points (uint32) of the cleaned texts and their offsets: no leading BLANK, one between words."""
    codes, offsets = _mapped(texts, cleaning)
    blank = codes == BLANK
    return _selected(codes, offsets, ~(blank & _after(blank, offsets)))


def _word_hashes(codes: Array, offsets: Array) -> tuple[Array, Array]:
    """A hash of each word (a run without blanks, or a character of an unspaced script), and offsets in words."""
    blank = codes == BLANK
    starts = ~blank & _after(blank, offsets)
    if codes.max(initial=0) >= _UNSPACED[0][0]:
        own = np.zeros_like(blank)
        for first, last in _UNSPACED:
            own |= (codes >= first) & (codes <= last)
        starts |= own | (~blank & _after(own, offsets))
    starts = np.flatnonzero(starts)
    if len(starts) == 0:
        return np.zeros(0, np.uint64), np.zeros_like(offsets)
    powers, inverses = _powers(1 << max(16, int(len(codes) - 1).bit_length()))
    sums = np.cumsum(codes * powers[: len(codes)])
    # A word's sum runs on to the next word's start, over blanks.
    before = np.append(sums[starts] - codes[starts] * powers[starts], sums[-1])
    hashes = np.diff(before) * inverses[starts]
    return mixed(hashes), np.searchsorted(starts, offsets)


def _windows(units: Array, offsets: Array, n: int) -> tuple[Array, Array]:
    """Hashes of n consecutive units that lie in one document."""
    lengths = np.maximum(np.diff(offsets) - (n - 1), 0)
    total = len(units) - (n - 1)
    if total <= 0:
        return np.zeros(0, np.uint64), offsets_of(lengths)
    hashes = np.empty(total, np.uint64)
    for start in range(0, total, _CHUNK):
        part = hashes[start : start + _CHUNK]
        part[:] = units[start : start + len(part)]
        for place in range(1, n):
            part *= np.uint64(_MULTIPLIER)
            part += units[start + place : start + place + len(part)]
        part[:] = mixed(part)
    within = np.ones(total, dtype=bool)
    for place in range(1, n):
        crossing = offsets[1:-1] - place
        within[crossing[(crossing >= 0) & (crossing < total)]] = False
    return hashes[within], offsets_of(lengths)


def _mapped(texts: pl.Series, cleaning: Cleaning) -> tuple[Array, Array]:
    """Code points of the texts, each replaced by what it becomes, and their offsets."""
    offsets = offsets_of(texts.str.len_chars().to_numpy())
    codes = np.frombuffer("".join(texts.to_list()).encode("utf-32-le"), dtype="<u4")
    codes = _translated(codes, cleaning)
    return _selected(codes, offsets, codes != _DROPPED)


def _after(marks: Array, offsets: Array) -> Array:
    """Whether each code point follows a marked one or begins its text."""
    after = np.empty_like(marks)
    after[1:] = marks[:-1]
    after[offsets[:-1][np.diff(offsets) > 0]] = True
    return after


def _selected(codes: Array, offsets: Array, keep: Array) -> tuple[Array, Array]:
    left_out = np.flatnonzero(~keep)
    if len(left_out) == 0:
        return codes, offsets
    return codes[keep], offsets - np.searchsorted(left_out, offsets)


def _translated(codes: Array, cleaning: Cleaning) -> Array:
    table = _table(cleaning)
    out = np.take(table, codes)
    unknown = out == _UNKNOWN
    if unknown.any():
        for code in np.unique(codes[unknown]).tolist():
            table[code] = _clean_code(chr(code), cleaning)
        out = np.take(table, codes)
    return out


@cache
def _table(cleaning: Cleaning) -> Array:
    table = np.full(0x110000, _UNKNOWN, dtype=np.uint32)
    for code in range(128):
        table[code] = _clean_code(chr(code), cleaning)
    return table


def _clean_code(character: str, cleaning: Cleaning) -> int:
    category = unicodedata.category(character)
    if character.isspace():
        return BLANK
    if character in string.punctuation or category[0] == "P":
        return BLANK if cleaning.punctuation == "blank" else _DROPPED
    if category[0] == "C":  # control characters
        return _DROPPED
    if category == "Nd" and cleaning.digits == "zero":
        return ord("0")
    return ord(character.lower()[0])


@cache
def _powers(length: int) -> tuple[Array, Array]:
    """The multiplier to the power of 0, 1, …, and their inverses modulo 2⁶⁴."""
    base = np.uint64(_MULTIPLIER)
    inverse = np.uint64(pow(_MULTIPLIER, -1, 1 << 64))
    with np.errstate(over="ignore"):
        return tuple(  # pyright: ignore[reportReturnType]
            np.multiply.accumulate(np.concatenate([[np.uint64(1)], np.full(length - 1, step, np.uint64)]))
            for step in (base, inverse)
        )
