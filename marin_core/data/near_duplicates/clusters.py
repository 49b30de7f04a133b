"""Clusters of candidates: edges from shared hashes, connected components, and components divided into pieces of work.

Documents are uint64 keys. Whether a candidate is a duplicate is not decided here but in `containment.py`.
"""

from dataclasses import dataclass

import numpy as np

from marin_core.data.flat.arrays import Array, first_of_run, run_lengths, run_starts

# New edges held before they are merged into the components found so far, if there are not yet as many documents.
_PENDING_EDGES = 4_000_000


@dataclass(frozen=True)
class Edges:
    """uint64[edges, 2], each from a bucket's lowest key to another of its keys; and the sizes of the buckets."""

    pairs: Array
    buckets: Array


def star_edges(hashes: Array, keys: Array) -> Edges:
    """Edges that connect the documents of equal hash. A bucket of m documents has m - 1 edges, whatever m is."""
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    sizes = run_lengths(run_starts(hashes))
    # Most buckets hold one document: only the others go on.
    shared = np.repeat(sizes > 1, sizes)
    hashes, keys = hashes[shared], keys[order[shared]]
    order = np.lexsort((keys, hashes))
    hashes, keys = hashes[order], keys[order]
    pairs = np.stack([keys[first_of_run(run_starts(hashes))], keys], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    return Edges(pairs[run_starts(*pairs.T)], sizes[sizes > 1])


class Components:
    """Connected components of edges that come in any order and portions.

    Memory: about 120 bytes for each document that has an edge, and as many for each edge not merged yet; of those
    there are at most as many as documents, or 4 million, and the edges of one portion. It always ends: components are
    found by search, not by rounds of an approximation.
    """

    def __init__(self) -> None:
        self.keys = np.zeros(0, np.uint64)
        """The documents that have an edge, ascending."""
        self.roots = np.zeros(0, np.uint64)
        """The lowest key of each one's component."""
        self._pending: list[Array] = []

    def add(self, pairs: Array) -> None:
        self._pending.append(pairs)
        if sum(map(len, self._pending)) > max(_PENDING_EDGES, len(self.keys)):
            self.merge()

    def merge(self) -> None:
        """Take the edges added so far into `keys` and `roots`."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        pairs = np.concatenate([np.stack([self.keys, self.roots], axis=1), *self._pending])
        self._pending = []
        keys = np.unique(pairs)
        if len(keys) == 0:
            return
        ends = np.searchsorted(keys, pairs)
        graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(len(keys), len(keys)))
        _, labels = connected_components(graph, directed=False)
        _, lowest = np.unique(labels, return_index=True)
        self.keys, self.roots = keys, keys[lowest[labels]]


@dataclass(frozen=True)
class Work:
    """Clusters as pieces of work; the arrays are parallel, in the order of the documents' keys.

    cluster: number of the document's cluster. group: number of the piece that the cluster is in. `split` components
    were too large to be one cluster.
    """

    cluster: Array
    group: Array
    split: int
    largest: int


def divide(keys: Array, roots: Array, lengths: Array, groups: int, max_documents: int, max_bytes: int) -> Work:
    """Components as clusters, and clusters as groups of about equal text.

    A component above `max_documents` or `max_bytes` becomes several clusters, of documents of similar length: near
    copies are similarly long, so few are parted, and parting keeps documents that could have been removed, never the
    reverse.
    """
    if len(keys) == 0:
        return Work(np.zeros(0, np.int64), np.zeros(0, np.int64), 0, 0)
    lengths = np.maximum(lengths.astype(np.int64), 1)
    order = np.lexsort((keys, -lengths, roots))
    roots, lengths = roots[order], lengths[order]
    component = run_starts(roots)
    start = first_of_run(component)
    before = np.cumsum(lengths) - lengths
    by_bytes = (before - before[start]) // max_bytes
    by_documents = (np.arange(len(keys)) - start) // max_documents
    fresh = run_starts(roots, by_bytes, by_documents)
    cluster = np.cumsum(fresh) - 1
    first = np.flatnonzero(fresh)
    group = before[first] * groups // max(1, int(lengths.sum()))
    split = np.unique(roots[fresh & ~component]).size
    unsorted = np.argsort(order)
    return Work(cluster[unsorted], group[cluster][unsorted], int(split), int(run_lengths(fresh).max()))
