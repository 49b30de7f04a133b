"""Flat texts: that words, lines, paragraphs and hashes are those of the strings they stand for."""

import itertools
import re
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.flat import texts as flat_text
from marin_core.data.flat.characters import ALPHANUMERIC, BLANK, LETTER, MARK, character_classes
from marin_core.data.flat.hashing import ngram_hashes
from marin_core.data.flat.texts import FlatTexts, Spans, text_hash
from tests.data.quality_reference import split_words

# Few characters, so that every combination of letters, digits, blanks and punctuation occurs.
DENSE = st.text(alphabet="aaB1_.-'/:(), \n\t…é\u0301", max_size=30)
TEXTS = st.lists(DENSE | st.text(max_size=20), max_size=5)


@given(TEXTS)
@settings(deadline=None, max_examples=300)
def test_words_are_those_of_the_strings(texts: list[str]) -> None:
    flat = FlatTexts(texts)
    assert pieces(flat, texts, flat.words("blank")) == [text.split() for text in texts]
    assert pieces(flat, texts, flat.words("punctuation")) == [split_words("punctuation", text) for text in texts]
    words = [[run for run in re.split(r"(?:(?!\w|\u0301).)+", text, flags=re.DOTALL) if run] for text in texts]
    if all(unicodedata.category(character)[0] != "M" or character == "\u0301" for character in "".join(texts)):
        assert pieces(flat, texts, flat.words("word")) == words


@given(TEXTS)
@settings(deadline=None)
def test_lines_and_paragraphs_are_those_of_the_strings(texts: list[str]) -> None:
    flat = FlatTexts(texts)
    assert pieces(flat, texts, flat.lines()) == [[line for line in text.split("\n") if line] for text in texts]
    paragraphs = [[part.strip("\n") for part in re.split("\n{2,}", text) if part.strip("\n")] for text in texts]
    assert pieces(flat, texts, flat.paragraphs()) == paragraphs
    assert flat.occurrences(ord(".")).tolist() == [text.count(".") for text in texts]
    assert flat.count(LETTER).tolist() == [sum(map(str.isalpha, text)) for text in texts]


@given(TEXTS)
@settings(deadline=None)
def test_equal_words_and_only_they_have_equal_hashes(texts: list[str]) -> None:
    flat = FlatTexts(texts)
    words = flat.words("blank")
    strings = [word for text in texts for word in text.split()]
    hashes = flat.hashes(words).tolist()
    assert hashes == [text_hash(word) for word in strings]
    assert len(set(hashes)) == len(set(strings))
    pairs = ngram_hashes(np.array(hashes, np.uint64), 2).tolist()
    assert len(set(pairs)) == len(set(itertools.pairwise(strings)))


def test_hashes_stay_equal_in_long_batches() -> None:
    flat = FlatTexts(["x" * 100_000, "needle", "é" * 50_000, "NEEDLE needle"])
    hashes = flat.hashes(flat.words("blank"), lower=True).tolist()
    assert hashes[1] == hashes[3] == hashes[4] == text_hash("needle")


def test_classes_are_what_strings_say_of_every_character() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    classes = character_classes()
    for bit, holds in (
        (BLANK, str.isspace),
        (LETTER, str.isalpha),
        (ALPHANUMERIC, str.isalnum),
        (MARK, lambda character: unicodedata.category(character)[0] == "M"),
    ):
        assert ((classes & bit) != 0).tolist() == list(map(holds, characters))


def test_a_text_beyond_the_limit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_text, "MAX_CHARACTERS", 10)
    assert FlatTexts(["x" * 11, "y"]).lengths.tolist() == [10, 1]


def pieces(flat: FlatTexts, texts: list[str], spans: Spans) -> list[list[str]]:
    """The strings of spans, by text."""
    whole = "".join(map(chr, flat.codes))
    strings = [whole[start:end] for start, end in zip(spans.starts, spans.ends, strict=True)]
    return [strings[begin:end] for begin, end in itertools.pairwise(spans.first)][: len(texts)]
