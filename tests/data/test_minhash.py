"""Signatures: texts to n-grams as a plain reading does, and bands that are shared as often as the theory says."""

import itertools
import random
import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.flat.ngrams import BLANK, Cleaning, Grams, batches, clean_codes, gram_hashes
from marin_core.data.near_duplicates.config import WORD_SHINGLES, MinHashConfig
from marin_core.data.near_duplicates.minhash import band_hashes, banded, signatures

TEXTS = st.lists(st.text() | st.text(alphabet="aB1 .,\n世ไé", max_size=40), max_size=12)
GRAMS = st.builds(Grams, st.integers(1, 6), st.sampled_from(["characters", "words"]), st.sampled_from([3, 20, 1000]))


def clean(text: str, cleaning: Cleaning) -> str:
    """What the cleaning means, a character at a time."""
    characters = []
    for character in text:
        category = unicodedata.category(character)
        if character.isspace():
            characters.append(" ")
        elif category[0] == "P" or (character.isascii() and category[0] == "S"):
            characters.append(" " if cleaning.punctuation == "blank" else "")
        elif category[0] != "C":
            is_zero = category == "Nd" and cleaning.digits == "zero"
            characters.append("0" if is_zero else character.lower()[0])
    joined = "".join(characters)
    while "  " in joined:
        joined = joined.replace("  ", " ")
    return joined.removeprefix(" ")


def grams_of(text: str, grams: Grams) -> list[tuple[str, ...]]:
    cleaned = clean(text[: grams.text_cap], grams.cleaning)
    if grams.unit == "words":
        spaced = "".join(f" {c} " if ord(c) >= 0x2E80 or 0xE00 <= ord(c) <= 0xEFF else c for c in cleaned)
        units = spaced.split(" ")
        units = [unit for unit in units if unit]
    else:
        units = list(cleaned)
    return [tuple(units[start : start + grams.n]) for start in range(len(units) - grams.n + 1)]


@given(TEXTS, st.builds(Cleaning, st.sampled_from(["removed", "blank"]), st.sampled_from(["kept", "zero"])))
@settings(deadline=None)
def test_texts_are_cleaned_as_a_plain_reading_does(texts: list[str], cleaning: Cleaning) -> None:
    codes, offsets = clean_codes(pl.Series(texts, dtype=pl.String), cleaning)
    found = ["".join(map(chr, codes[a:b])).replace(chr(BLANK), " ") for a, b in itertools.pairwise(offsets)]
    assert found == [clean(text, cleaning) for text in texts]


@given(TEXTS, GRAMS)
@settings(deadline=None)
def test_hashes_are_equal_exactly_where_n_grams_are(texts: list[str], grams: Grams) -> None:
    hashes, offsets = gram_hashes(pl.Series(texts, dtype=pl.String), grams)
    expected = [grams_of(text, grams) for text in texts]
    assert np.diff(offsets).tolist() == [len(each) for each in expected]
    of_gram = dict(zip([gram for each in expected for gram in each], hashes.tolist(), strict=True))
    assert [of_gram[gram] for each in expected for gram in each] == hashes.tolist()
    assert len(set(of_gram.values())) == len(of_gram)


@given(TEXTS)
@settings(deadline=None)
def test_a_document_is_hashed_alike_whatever_lies_around_it(texts: list[str]) -> None:
    together, rows = band_hashes(pl.Series(texts, dtype=pl.String), MinHashConfig())
    alone = {row: band_hashes(pl.Series([text], dtype=pl.String), MinHashConfig())[0] for row, text in enumerate(texts)}
    assert rows.tolist() == [row for row, hashes in alone.items() if len(hashes)]
    assert all((together[place] == alone[row][0]).all() for place, row in enumerate(rows.tolist()))


def test_batches_cover_all_documents_and_are_bounded() -> None:
    texts = pl.Series(["a" * length for length in (3, 3, 3, 50, 1, 1, 9)])
    assert [(part.start, part.stop) for part in batches(texts, 10)] == [(0, 3), (3, 4), (4, 6), (6, 7)]


@pytest.mark.parametrize("text", ["", " ", "abc", "....", "a.b.c.d"])
def test_a_text_without_an_n_gram_has_no_bands(text: str) -> None:
    hashes, rows = band_hashes(pl.Series([text, "a longer text"]), MinHashConfig())
    assert rows.tolist() == [1]
    assert hashes.shape == (1, 26)


def test_only_the_first_characters_are_sketched() -> None:
    texts = pl.Series(["one two three", "one two four"])
    capped, _ = band_hashes(texts, MinHashConfig(text_cap=8))
    whole, _ = band_hashes(texts, MinHashConfig())
    assert (capped[0] == capped[1]).all()
    assert (whole[0] != whole[1]).any()


def test_case_punctuation_and_blanks_do_not_matter() -> None:
    hashes, _ = band_hashes(pl.Series(["Hello,  World! It's me.", "hello world\nits me"]), MinHashConfig())
    assert (hashes[0] == hashes[1]).all()


def test_bands_are_not_confused_and_depend_on_the_seed() -> None:
    texts = pl.Series(["the same text in every band and with every seed"])
    one, _ = band_hashes(texts, MinHashConfig())
    other, _ = band_hashes(texts, MinHashConfig(seed=43))
    assert len(np.unique(np.concatenate([one, other]))) == 52


@pytest.mark.parametrize("jaccard", [0.5, 0.8, 0.95])
def test_signatures_estimate_the_jaccard_similarity(jaccard: float) -> None:
    config = MinHashConfig()
    rng = np.random.default_rng(0)
    found = []
    for _ in range(60):
        left, right = sets(rng, 500, jaccard)
        both = signatures(np.concatenate([left, right]), np.array([0, len(left), len(left) + len(right)]), config)
        found.append((both[0] == both[1]).mean())
    assert np.mean(found) == pytest.approx(jaccard, abs=0.01)
    # The spread that as many independent permutations have, or less.
    assert np.std(found) < 1.3 * np.sqrt(jaccard * (1 - jaccard) / 286)


@pytest.mark.parametrize(("config", "jaccard"), [(MinHashConfig(), 0.7), (WORD_SHINGLES, 0.6), (WORD_SHINGLES, 0.8)])
def test_bands_are_shared_as_often_as_the_theory_says(config: MinHashConfig, jaccard: float) -> None:
    rng = random.Random(1)
    shared = []
    for _ in range(400):
        words = [f"w{rng.getrandbits(40)}" for _ in range(300)]
        common = round(2 * jaccard / (1 + jaccard) * len(words))
        grams = [" ".join(f"{word}x{place}" for place in range(config.ngram)) for word in words]
        others = [" ".join(f"{rng.getrandbits(40)}y{place}" for place in range(config.ngram)) for _ in words[common:]]
        shared.append(share_a_band(grams, grams[:common] + others, config))
    expected = 1 - (1 - jaccard**config.rows) ** config.bands
    assert np.mean(shared) == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / len(shared)) + 0.01)


def share_a_band(left: list[str], right: list[str], config: MinHashConfig) -> bool:
    """Whether two sets of n-grams share a band; hashed one n-gram at a time, so that the sets are exact."""
    hashed = [gram_hashes(pl.Series(grams), Grams(config.ngram, "words", 1000))[0] for grams in (left, right)]

    offsets = np.array([0, len(hashed[0]), len(hashed[0]) + len(hashed[1])])
    bands = banded(signatures(np.concatenate(hashed), offsets, config), config)
    return bool((bands[0] == bands[1]).any())


def sets(rng: np.random.Generator, size: int, jaccard: float) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of hashes of this size and similarity."""
    common = round(2 * jaccard / (1 + jaccard) * size)
    shared, *rest = (rng.integers(0, 2**64, n, dtype=np.uint64) for n in (common, size - common, size - common))
    return np.concatenate([shared, rest[0]]), np.concatenate([rest[1], shared])
