"""Which documents of a cluster are removed: those whose n-grams lie in a longer document that is retained.

A shared band says that two documents may be alike; here it is measured. N-grams that many documents of the source have
(templates, navigation, licence headers) say nothing about who copied whom and do not count, so that rows which differ
in a few values survive, while a copy of a page is found under the page's boilerplate.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from marin_core.data.flat.arrays import Array, first_of_run, run_lengths, run_starts
from marin_core.data.flat.ngrams import Cleaning, Grams
from marin_core.data.near_duplicates.gram_sets import COMPARED, GramSets, among, overlaps

# A document is compared with the cluster's longest, and with the few that have most of its rarest n-grams.
_PROBES = 16
_CANDIDATES = 3


@dataclass(frozen=True)
class ContainmentConfig:
    """When a document counts as contained in another.

    N-grams are of words. One that more than `boilerplate_share` of the source's documents have, and more than
    `boilerplate_documents` of the sample, is boilerplate. A document is removed when a longer one that stays has
    `min_containment` of its n-grams and `min_rare_containment` of those that are not boilerplate. The second is lower,
    since an edit destroys rare n-grams first. Of a document with fewer than `min_rare` of these, too few to judge by, a
    longer one must have `min_plain_containment` of all.
    """

    ngram: int = 2
    min_containment: float = 0.75
    min_rare_containment: float = 0.65
    min_rare: int = 8
    min_plain_containment: float = 0.98
    boilerplate_share: float = 0.01
    boilerplate_documents: int = 32
    sample_documents: int = 4096
    # Longer documents stay, since what is beyond is not compared.
    text_cap: int = 8_000_000

    @property
    def grams(self) -> Grams:
        return Grams(self.ngram, "words", self.text_cap, Cleaning("blank"))


@dataclass(frozen=True)
class Decision:
    """by: the retained document that contains each one, -1 for a document that stays. containment: the largest that was
    measured, NaN where nothing was. compared: pairs measured."""

    by: Array
    containment: Array
    compared: int


def boilerplate(sample: Array, documents: int, config: ContainmentConfig) -> Array:
    """The n-grams, ascending, that many of the sample's `documents` have; `sample` is their sets end to end."""
    grams = np.sort(sample)
    fresh = run_starts(grams)
    return grams[fresh][run_lengths(fresh) > max(config.boilerplate_documents, config.boilerplate_share * documents)]


def decide(cluster: Array, sets: GramSets, common: Array, config: ContainmentConfig) -> Decision:
    """Decide on the documents of clusters, which lie cluster by cluster and in each longest first.

    `common` is the source's boilerplate. Every removed document is contained in one that stays, which is the first or
    one that shares rare n-grams with it: the work grows with the n-grams, not with the square of a cluster. Memory:
    about 100 bytes for each of 4 million n-grams, or of the largest cluster's if it has more.
    """
    firsts = np.flatnonzero(run_starts(cluster))
    portions = firsts[run_starts(sets.offsets[firsts] // COMPARED)]
    by, best, compared = [np.zeros(0, np.int64)], [np.zeros(0)], 0
    for start, stop in itertools.pairwise([*portions.tolist(), len(cluster)]):
        decision = _decide(cluster[start:stop], sets.slice(start, stop), common, config)
        by.append(np.where(decision.by < 0, -1, decision.by + start))
        best.append(decision.containment)
        compared += decision.compared
    return Decision(np.concatenate(by), np.concatenate(best), compared)


class _Measure:
    """Containment of one document in another."""

    def __init__(self, sets: GramSets, common: Array, config: ContainmentConfig):
        self.sets, self.common, self.config = sets, common, config
        rare = ~among(sets.grams, common)
        self.rare_sizes = np.bincount(sets.owners()[rare].astype(np.int64), minlength=len(sets.sizes))
        self.compared = 0

    def __call__(self, pairs: Array) -> tuple[Array, Array]:
        """float64[pairs]: the share of the first one's n-grams that the second has; bool[pairs]: whether that is enough
        to remove it."""
        self.compared += len(pairs)
        shared, rare = overlaps(pairs, self.sets, self.common)
        sizes, rare_sizes = self.sets.sizes[pairs[:, 0]], self.rare_sizes[pairs[:, 0]]
        share = shared / np.maximum(sizes, 1)
        by_rare = rare >= self.config.min_rare_containment * rare_sizes
        enough = np.where(
            rare_sizes < self.config.min_rare,
            share >= self.config.min_plain_containment,
            (share >= self.config.min_containment) & by_rare,
        )
        return share, enough


def _decide(cluster: Array, sets: GramSets, common: Array, config: ContainmentConfig) -> Decision:
    measure = _Measure(sets, common, config)
    pairs = _candidates(cluster, sets)
    shares, enough = measure(pairs)
    best = np.full(len(cluster), np.nan)
    np.fmax.at(best, pairs[:, 0], shares)
    by = np.full(len(cluster), -1)
    # Longest first, so that whether a container stays is known when its turn comes.
    for document, found in itertools.groupby(pairs[enough].tolist(), key=lambda pair: pair[0]):
        others = [other for _, other in found]
        stay = [other for other in others if by[other] < 0]
        if not stay:
            # What it is contained in is itself contained in another: that one must contain it as well.
            last = np.unique(by[others])
            stay = last[measure(np.stack([np.full_like(last, document), last], axis=1))[1]].tolist()
        by[document] = stay[0] if stay else -1
    return Decision(by, best, measure.compared)


def _candidates(cluster: Array, sets: GramSets) -> Array:
    """int64[pairs, 2], ascending: each document with longer ones of its cluster that it may be contained in."""
    fresh = run_starts(cluster)
    documents = np.flatnonzero(~fresh & (sets.sizes > 0))
    pairs = [np.stack([documents, first_of_run(fresh)[documents]], axis=1)]
    # In a cluster of two there is no other.
    larger = np.repeat(run_lengths(fresh) > 2, run_lengths(fresh))
    if larger.any():
        pairs.append(_sharing(cluster, sets, larger))
    return np.unique(np.concatenate(pairs), axis=0)


def _sharing(cluster: Array, sets: GramSets, within: Array) -> Array:
    """Pairs of a document with the longest and the next longer one that has the same n-gram, for the n-grams that the
    fewest documents share with it; of these pairs the few that come most often."""
    owners = sets.owners()
    chosen = within[owners.astype(np.int64)]
    packed = np.sort(sets.grams[chosen].astype(np.uint64) << np.uint64(32) | owners[chosen])
    document = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    gram = (packed >> np.uint64(32)).astype(np.uint32)
    fresh = run_starts(gram, cluster[document])
    longest = document[first_of_run(fresh)]
    frequency = np.repeat(run_lengths(fresh), run_lengths(fresh))
    probes = np.flatnonzero(~fresh)
    probes = probes[np.lexsort((gram[probes], frequency[probes], document[probes]))]
    probes = probes[_rank(document[probes]) < _PROBES]
    other = np.concatenate([document[probes - 1], longest[probes]])
    found, hits = np.unique(np.stack([np.tile(document[probes], 2), other], axis=1), axis=0, return_counts=True)
    found = found[np.lexsort((found[:, 1], -hits, found[:, 0]))]
    return found[_rank(found[:, 0]) < _CANDIDATES]


def _rank(owner: Array) -> Array:
    """The place of each element in its run of equal owners."""
    return np.arange(len(owner)) - first_of_run(run_starts(owner))
