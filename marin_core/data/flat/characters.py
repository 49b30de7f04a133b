"""What each Unicode character is to the rules: a class, and a value for hashing. Words are in `texts.py`."""

import functools
import itertools
import unicodedata
from collections.abc import Iterator

import numpy as np

from marin_core.data.flat.hashing import mixed

# Bits of a character's class.
BLANK, LETTER, DIGIT, UNDERSCORE, MARK = 1, 2, 4, 8, 16
ALPHANUMERIC = LETTER | DIGIT
WORD = ALPHANUMERIC | UNDERSCORE | MARK


@functools.lru_cache(maxsize=1)
def character_classes() -> np.ndarray:
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
def character_values() -> tuple[np.ndarray, np.ndarray]:
    """A fixed pseudo-random 64-bit value of every code point, and that of its lower case."""
    codes = np.arange(1, 0x110001, dtype=np.uint64)
    values = mixed(mixed(codes * np.uint64(0x9E3779B97F4A7C15)) + np.uint64(1))
    # The few characters with a lower case of two stay as they are: a hash is of as many characters as its span.
    lowered = values.copy()
    for code in _assigned():
        if len(lower := chr(code).lower()) == 1:
            lowered[code] = values[ord(lower)]
    return values, lowered


def _assigned() -> Iterator[int]:
    """Code points, without the planes that hold nothing or private use."""
    return itertools.chain(range(0x40000), range(0xE0000, 0xE1000))
