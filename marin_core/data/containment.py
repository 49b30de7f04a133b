"""Which documents of a cluster are removed: those whose n-grams lie in a longer document that is retained.

A shared band says that two documents may be alike; here it is measured. N-grams that many documents of the source have
(templates, navigation, licence headers) say nothing about who copied whom and do not count, so that rows which differ
in a few values survive, while a copy of a page is found under the page's boilerplate.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from marin_core.data.flat_arrays import Array, first_of_run, run_lengths, run_starts
from marin_core.data.gram_sets import COMPARED, GramSets, containments
from marin_core.data.ngrams import Cleaning, Grams

# A document is compared with the cluster's longest, and with the few that have most of its rarest n-grams.
_PROBES = 16
_CANDIDATES = 3


@dataclass(frozen=True)
class ContainmentConfig:
    """When a document counts as contained in another.

    N-grams are of words. One that more than `boilerplate_share` of the source's documents have, and more than
    `boilerplate_documents` of the sample, is boilerplate. A document with at least `min_grams` others is removed when
    `min_containment` of those are in a longer retained document; one with fewer, where what is not boilerplate is too
    little to judge by, when `min_plain_containment` of all its n-grams are.
    """

    ngram: int = 2
    min_containment: float = 0.75
    min_grams: int = 8
    min_plain_containment: float = 0.98
    boilerplate_share: float = 0.01
    boilerplate_documents: int = 32
    sample_documents: int = 8192
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


@dataclass(frozen=True)
class _Judged:
    """The n-grams that each document is judged by: `sets` without boilerplate, except in documents that are `plain`
    because too little would remain."""

    sets: GramSets
    plain: Array
    common: Array

    def has(self, documents: Array, grams: Array) -> Array:
        """Whether each of some documents is judged by an n-gram that it has."""
        return self.plain[documents] | ~_among(grams, self.common)


def _decide(cluster: Array, sets: GramSets, common: Array, config: ContainmentConfig) -> Decision:
    judged = _judged(sets, common, config)
    thresholds = np.where(judged.plain, config.min_plain_containment, config.min_containment)
    pairs = _candidates(cluster, sets, judged)
    measured = containments(pairs, judged.sets, sets)
    best = np.full(len(cluster), np.nan)
    np.fmax.at(best, pairs[:, 0], measured)
    by, compared = np.full(len(cluster), -1), len(pairs)
    passing = pairs[measured >= thresholds[pairs[:, 0]]]
    # Longest first, so that whether a container is retained is known when its turn comes.
    for document, found in itertools.groupby(passing.tolist(), key=lambda pair: pair[0]):
        others = [other for _, other in found]
        retained = [other for other in others if by[other] < 0]
        if not retained:
            # What it is contained in is itself contained in another: that one must contain it as well.
            last = np.unique(by[others])
            again = containments(np.stack([np.full_like(last, document), last], axis=1), judged.sets, sets)
            retained = last[again >= thresholds[document]].tolist()
            compared += len(last)
        by[document] = retained[0] if retained else -1
    return Decision(by, best, compared)


def _judged(sets: GramSets, common: Array, config: ContainmentConfig) -> _Judged:
    owners = sets.owners().astype(np.int64)
    rare = ~_among(sets.grams, common)
    counts = np.bincount(owners[rare], minlength=len(sets.sizes))
    plain = counts < config.min_grams
    sizes = np.where(plain, sets.sizes, counts)
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return _Judged(GramSets(sets.grams[rare | plain[owners]], offsets), plain, common)


def _among(grams: Array, common: Array) -> Array:
    if len(common) == 0:
        return np.zeros(len(grams), dtype=bool)
    return common[np.minimum(np.searchsorted(common, grams), len(common) - 1)] == grams


def _candidates(cluster: Array, sets: GramSets, judged: _Judged) -> Array:
    """int64[pairs, 2], ascending: each document with longer ones of its cluster that it may be contained in."""
    fresh = run_starts(cluster)
    documents = np.flatnonzero(~fresh & (judged.sets.sizes > 0))
    pairs = [np.stack([documents, first_of_run(fresh)[documents]], axis=1)]
    # In a cluster of two there is no other.
    larger = np.repeat(run_lengths(fresh) > 2, run_lengths(fresh))
    if larger.any():
        pairs.append(_sharing(cluster, sets, judged, larger))
    return np.unique(np.concatenate(pairs), axis=0)


def _sharing(cluster: Array, sets: GramSets, judged: _Judged, within: Array) -> Array:
    """Pairs of a document with the longest and the next longer one that has the same n-gram, for its rarest n-grams;
    of these the few that come most often."""
    owners = sets.owners()
    chosen = within[owners.astype(np.int64)]
    packed = np.sort(sets.grams[chosen].astype(np.uint64) << np.uint64(32) | owners[chosen])
    document = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    gram = (packed >> np.uint64(32)).astype(np.uint32)
    fresh = run_starts(gram, cluster[document])
    longest = document[first_of_run(fresh)]
    frequency = np.repeat(run_lengths(fresh), run_lengths(fresh))
    probes = np.flatnonzero(~fresh)
    probes = probes[judged.has(document[probes], gram[probes])]
    probes = probes[np.lexsort((gram[probes], frequency[probes], document[probes]))]
    probes = probes[_rank(document[probes]) < _PROBES]
    other = np.concatenate([document[probes - 1], longest[probes]])
    found, hits = np.unique(np.stack([np.tile(document[probes], 2), other], axis=1), axis=0, return_counts=True)
    found = found[np.lexsort((found[:, 1], -hits, found[:, 0]))]
    return found[_rank(found[:, 0]) < _CANDIDATES]


def _rank(owner: Array) -> Array:
    """The place of each element in its run of equal owners."""
    return np.arange(len(owner)) - first_of_run(run_starts(owner))
