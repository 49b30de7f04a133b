"""Containment: who is removed, that it lies in one that stays, and what boilerplate has to do with it."""

import random
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.near_duplicates import containment, gram_sets
from marin_core.data.near_duplicates.containment import ContainmentConfig, Decision, boilerplate, decide
from marin_core.data.near_duplicates.gram_sets import GramSets, overlaps
from marin_core.data.near_duplicates.gram_sets import gram_sets as sets_of

CONFIG = ContainmentConfig()
GRAM_LISTS = st.lists(st.frozensets(st.integers(0, 40), max_size=25), min_size=1, max_size=14)
COMMON = st.frozensets(st.integers(0, 40), max_size=15)


def gram_sets_of(documents: Sequence[frozenset[int]]) -> GramSets:
    arrays = [np.array(sorted(document), dtype=np.uint32) for document in documents]
    return GramSets.joined([GramSets(array, np.array([0, len(array)])) for array in arrays])


def share(document: frozenset[int], other: frozenset[int]) -> float:
    return len(document & other) / len(document)


def contained(document: frozenset[int], other: frozenset[int], common: frozenset[int]) -> bool:
    rare = document - common
    if len(rare) < CONFIG.min_rare:
        return bool(document) and share(document, other) >= CONFIG.min_plain_containment
    return share(document, other) >= CONFIG.min_containment and share(rare, other) >= CONFIG.min_rare_containment


def decide_on(texts: Sequence[str], cluster: Sequence[int], common: Sequence[str] = ()) -> Decision:
    grams = np.unique(sets_of(pl.Series(common, dtype=pl.String), CONFIG.grams).grams)
    return decide(np.array(cluster), sets_of(pl.Series(texts), CONFIG.grams), grams, CONFIG)


@given(GRAM_LISTS, COMMON, st.randoms())
@settings(deadline=None, max_examples=300)
def test_a_removed_document_is_contained_in_one_that_stays(
    documents: list[frozenset[int]], common: frozenset[int], rng: random.Random
) -> None:
    cluster = sorted(rng.randrange(3) for _ in documents)
    decision = decide(np.array(cluster), gram_sets_of(documents), np.array(sorted(common), dtype=np.uint32), CONFIG)
    for document, by in enumerate(decision.by.tolist()):
        if by >= 0:
            assert by < document
            assert cluster[by] == cluster[document]
            assert decision.by[by] == -1
            assert contained(documents[document], documents[by], common)


@given(GRAM_LISTS, COMMON)
@settings(deadline=None, max_examples=300)
def test_what_lies_in_the_longest_of_its_cluster_is_removed(
    documents: list[frozenset[int]], common: frozenset[int]
) -> None:
    decision = decide(
        np.zeros(len(documents), int), gram_sets_of(documents), np.array(sorted(common), dtype=np.uint32), CONFIG
    )
    assert decision.by[0] == -1
    for document, found in enumerate(documents[1:], start=1):
        if contained(found, documents[0], common):
            assert decision.by[document] >= 0


@given(GRAM_LISTS, st.randoms())
@settings(deadline=None)
def test_deciding_in_portions_is_deciding_at_once(documents: list[frozenset[int]], rng: random.Random) -> None:
    cluster = np.array(sorted(rng.randrange(5) for _ in documents))
    sets, common = gram_sets_of(documents), np.zeros(0, np.uint32)
    whole = decide(cluster, sets, common, CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containment, "COMPARED", 20)
        patch.setattr(gram_sets, "COMPARED", 20)
        portions = decide(cluster, sets, common, CONFIG)
    assert portions.by.tolist() == whole.by.tolist()
    np.testing.assert_array_equal(portions.containment, whole.containment)


@given(GRAM_LISTS, COMMON, st.randoms())
@settings(deadline=None)
def test_overlaps_are_those_of_sets(
    documents: list[frozenset[int]], common: frozenset[int], rng: random.Random
) -> None:
    pairs = [(rng.randrange(len(documents)), rng.randrange(len(documents))) for _ in range(10)]
    both, rare = overlaps(np.array(pairs), gram_sets_of(documents), np.array(sorted(common), dtype=np.uint32))
    assert both.tolist() == [len(documents[a] & documents[b]) for a, b in pairs]
    assert rare.tolist() == [len(documents[a] & documents[b] - common) for a, b in pairs]


def test_a_copy_is_found_beside_longer_documents_that_are_no_copies() -> None:
    rng = random.Random(0)
    others = [words(rng, 400) for _ in range(50)]
    original = words(rng, 300)
    copy = edited(rng, original, 0.02)
    decision = decide_on([*others, original, copy], [0] * 52)
    assert decision.by.tolist() == [-1] * 51 + [50]


def test_what_follows_a_removed_document_is_measured_against_the_one_that_stays() -> None:
    # Each is most of the one before it, but the last shares little with the first.
    tokens = [f"w{number}" for number in range(1000)]
    texts = [" ".join(tokens[start:]) for start in (0, 200, 400)] + [" ".join(tokens[600:] + tokens[:10])]
    assert decide_on(texts, [0] * 4).by.tolist() == [-1, 0, 0, 0]
    drift = [" ".join(tokens[start : start + 500 - start // 10]) for start in (0, 100, 200)]
    assert decide_on(drift, [0] * 3).by.tolist() == [-1, 0, -1]


def test_rows_of_a_template_stay_and_copies_under_boilerplate_go() -> None:
    rng = random.Random(0)
    template = words(rng, 200)
    rows = [f"{template} {words(rng, 15)}" for _ in range(40)]
    without = decide_on(rows, [0] * 40)
    assert (without.by >= 0).sum() == 39
    assert (decide_on(rows, [0] * 40, [template]).by < 0).all()
    page = f"{template} {words(rng, 60)}"
    copies = [page, f"{template} {edited(rng, page.removeprefix(template), 0.05)}"]
    assert decide_on([*copies, *rows], [0] * 42, [template]).by.tolist() == [-1, 0] + [-1] * 40


@pytest.mark.parametrize(("differing", "removed"), [(0, True), (1, True), (4, False)])
def test_what_is_nearly_all_boilerplate_goes_only_if_nearly_equal(differing: int, removed: bool) -> None:
    rng = random.Random(0)
    template = words(rng, 150)
    tokens = template.split()
    for place in range(differing):
        tokens[place * 20] = f"value{place}"
    decision = decide_on([f"{template} longer", " ".join(tokens)], [0, 0], [template])
    assert (decision.by[1] == 0) == removed


def test_boilerplate_is_what_a_share_of_the_documents_has() -> None:
    sample = np.concatenate([np.full(40, 7), np.full(32, 8), np.arange(100, 200)]).astype(np.uint32)
    assert boilerplate(sample, 1000, CONFIG).tolist() == [7]
    assert boilerplate(sample, 4000, CONFIG).tolist() == []


def test_documents_without_n_grams_stay() -> None:
    decision = decide_on(["", "one", "one", "two words"], [0, 0, 1, 1])
    assert decision.by.tolist() == [-1] * 4
    assert decide_on(["text"], [0]).compared == 0


def test_no_documents_are_decided_on_as_none() -> None:
    nothing = GramSets.joined([])
    assert len(decide(np.zeros(0, int), nothing, np.zeros(0, np.uint32), CONFIG).by) == 0


def words(rng: random.Random, count: int) -> str:
    return " ".join(f"w{rng.randrange(100_000)}" for _ in range(count))


def edited(rng: random.Random, text: str, rate: float) -> str:
    return " ".join(words(rng, 1) if rng.random() < rate else word for word in text.split())
