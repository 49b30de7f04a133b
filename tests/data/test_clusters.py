"""Clusters: components that are right whatever the order of the edges, and pieces of work that are bounded."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.near_duplicates import clusters
from marin_core.data.near_duplicates.clusters import Components, divide, star_edges

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda edge: edge[0] != edge[1]), max_size=40)


def components(portions: list[list[tuple[int, int]]]) -> dict[int, int]:
    found = Components()
    for portion in portions:
        found.add(np.array(portion, dtype=np.uint64).reshape(-1, 2))
    found.merge()
    return dict(zip(found.keys.tolist(), found.roots.tolist(), strict=True))


def reference(edges: list[tuple[int, int]]) -> dict[int, int]:
    """The lowest key that can be reached from each."""
    root = {key: key for edge in edges for key in edge}
    for _ in root:
        for one, other in edges:
            root[one] = root[other] = min(root[one], root[other])
    return root


@given(EDGES)
@settings(deadline=None)
def test_components_are_what_can_be_reached(edges: list[tuple[int, int]]) -> None:
    assert components([edges]) == reference(edges)


@given(EDGES, st.randoms(), st.integers(1, 5))
@settings(deadline=None)
def test_components_do_not_depend_on_order_and_portions(
    edges: list[tuple[int, int]], rng: random.Random, portions: int
) -> None:
    shuffled = [rng.choice([(one, other), (other, one)]) for one, other in rng.sample(edges, len(edges))]
    assert components([shuffled[start::portions] for start in range(portions)]) == components([edges])


@pytest.mark.parametrize("pending", [1000, 4_000_000])
def test_a_chain_of_a_hundred_thousand_is_one_component(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_PENDING_EDGES", pending)
    keys = np.random.default_rng(0).permutation(100_000).astype(np.uint64)
    found = Components()
    for portion in np.array_split(np.stack([keys[1:], keys[:-1]], axis=1), 20):
        found.add(portion)
    found.merge()
    assert len(found.keys) == 100_000
    assert not found.roots.any()


def test_a_bucket_of_many_documents_has_no_more_edges_than_documents() -> None:
    keys = np.arange(300_000, dtype=np.uint64)[::-1]
    edges = star_edges(np.full(len(keys), 7, np.uint64), keys)
    assert len(edges.pairs) == len(keys) - 1
    assert not edges.pairs[:, 0].any()
    assert edges.buckets.tolist() == [300_000]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=60), st.randoms())
@settings(deadline=None)
def test_star_edges_connect_what_shares_a_hash(rows: list[tuple[int, int]], rng: random.Random) -> None:
    def edges(order: list[tuple[int, int]]) -> list[tuple[int, int]]:
        hashes, keys = (np.array([row[side] for row in order], dtype=np.uint64) for side in (0, 1))
        return [tuple(pair) for pair in star_edges(hashes, keys).pairs.tolist()]

    lowest = {hash_: min(key for other, key in rows if other == hash_) for hash_, _ in rows}
    assert edges(rows) == sorted({(lowest[h], key) for h, key in rows if key != lowest[h]})
    assert edges(rng.sample(rows, len(rows))) == edges(rows)


def test_a_component_that_is_too_large_becomes_clusters_of_similar_length() -> None:
    keys, lengths = np.arange(10, dtype=np.uint64), np.array([5, 1, 9, 3, 7, 2, 8, 4, 6, 10])
    work = divide(keys, np.zeros(10, np.uint64), lengths, groups=4, max_documents=4, max_bytes=10**6)
    members = [lengths[work.cluster == cluster].tolist() for cluster in range(3)]
    assert [sorted(each) for each in members] == [[7, 8, 9, 10], [3, 4, 5, 6], [1, 2]]
    assert (work.split, work.largest) == (1, 4)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), min_size=1, max_size=60), st.integers(1, 8))
@settings(deadline=None)
def test_work_is_bounded_and_keeps_clusters_whole(rows: list[tuple[int, int]], groups: int) -> None:
    roots, lengths = (np.array([row[side] for row in rows]) for side in (0, 1))
    work = divide(np.arange(len(rows), dtype=np.uint64), roots.astype(np.uint64), lengths, groups, 5, 100)
    assert set(work.group.tolist()) <= set(range(groups))
    for cluster in np.unique(work.cluster):
        chosen = work.cluster == cluster
        assert len(set(roots[chosen])) == len(set(work.group[chosen])) == 1
        assert chosen.sum() <= work.largest <= 5
        assert lengths[chosen].sum() <= 100 + 50
    for group in range(groups):
        assert lengths[work.group == group].sum() <= lengths.sum() / groups + 150
