"""Makes the index of evaluation items that documents are compared with: countable n-grams, common ones left out."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from marin_core.data.contamination.boilerplate import LICENCE_NOTICES
from marin_core.data.contamination.config import OverlapRules
from marin_core.data.contamination.overlap import OverlapIndex, common_above
from marin_core.data.documents import document_parts, text_batches
from marin_core.data.flat.hashing import mixed
from marin_core.data.flat.word_grams import WordGrams
from marin_core.errors import MarinError
from marin_core.store import Artifact

# Keys and postings in memory, in every process that compares documents.
MAX_NGRAMS = 80_000_000
_BATCH_BYTES = 500_000


@dataclass
class _Items:
    """Evaluation items as they are read: ids, and (item, n-gram or hash of all words) pairs."""

    ids: list[str] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    lengths: list[np.ndarray] = field(default_factory=list)
    shares: list[np.ndarray] = field(default_factory=list)
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    short: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    ngrams: int = 0


def build_index(evaluations: Mapping[str, Artifact], rules: OverlapRules) -> OverlapIndex:
    """The index of every document of the evaluation sources.

    Raises:
        MarinError: they have more n-grams than fit in memory, or a part is missing or damaged.
    """
    items = _Items()
    for number, name in enumerate(sorted(evaluations)):
        _read_evaluation(items, number, evaluations[name], rules)
        if items.ngrams > MAX_NGRAMS:
            raise MarinError(
                f"the evaluation sources up to {name!r} have {items.ngrams:,} different {rules.n}-grams, more than the "
                f"{MAX_NGRAMS:,} that are compared at a time; declare fewer or shorter evaluation sources"
            )
    owners, grams = _joined(items.pairs, 2)
    short_items, short_keys, short_whole = _joined(items.short, 3)
    return OverlapIndex(
        names=np.array(sorted(evaluations) or [""]),
        evaluations=np.array(items.evaluations, np.int64),
        ids=np.array(items.ids, "U32"),
        shares=np.concatenate([np.zeros(0), *items.shares]),
        **_inverted(owners, grams, len(items.ids)),
        **_first_of_each(short_keys.astype(np.uint64), short_items, short_whole),
    )


def without_common(
    index: OverlapIndex, documents: Iterable[WordGrams], rules: OverlapRules
) -> tuple[OverlapIndex, int]:
    """The index without what is common in a sample of documents, and how many n-grams those are."""
    counts, short_counts = np.zeros(len(index.keys), np.int64), np.zeros(len(index.short_keys), np.int64)
    population = 0
    for grams in documents:
        counts += np.bincount(index.keys_of(grams)[1], minlength=len(index.keys))
        short_counts += np.bincount(index.short_places(grams)[1], minlength=len(index.short_keys))
        population += grams.texts
    limit = common_above(rules.common_documents, population)
    kept, kept_short = counts <= limit, short_counts <= limit
    short = {name: getattr(index, name)[kept_short] for name in ("short_keys", "short_items", "short_whole")}
    sizes = np.diff(index.first)
    owners, grams_kept = index.postings[np.repeat(kept, sizes)], np.repeat(index.keys, sizes)[np.repeat(kept, sizes)]
    return replace(index, **_inverted(owners, grams_kept, len(index.ids)), **short), int((~kept).sum())


def _read_evaluation(items: _Items, number: int, evaluation: Artifact, rules: OverlapRules) -> None:
    """Add an evaluation source's items, without the n-grams that are common among them."""
    begin, found = len(items.ids), []
    for path in document_parts(evaluation):
        for batch in text_batches(evaluation, path, batch_bytes=_BATCH_BYTES):
            grams = WordGrams(batch["text"].to_list(), rules.n)
            found.append(_countable(grams, len(items.ids), rules, items.shares))
            items.short.append(_short(grams, len(items.ids), rules))
            items.ids += batch["id"].to_list()
    items.evaluations += [number] * (len(items.ids) - begin)
    owners, grams = _joined(found, 2)
    order = np.argsort(grams.astype(np.uint64), kind="stable")
    owners, grams = owners[order], grams.astype(np.uint64)[order]
    _, sizes = np.unique(grams, return_counts=True)
    kept = np.repeat(sizes <= common_above(rules.common_items, len(items.ids) - begin), sizes)
    items.pairs.append((owners[kept], grams[kept]))
    items.ngrams += int(kept.sum())


def _countable(
    grams: WordGrams, begin: int, rules: OverlapRules, shares: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(item, n-gram) of the distinct countable n-grams, of a long item a sample; appends the shares that were taken."""
    countable = grams.whole & (grams.distinct_lettered() >= rules.min_distinct_words)
    places = np.flatnonzero(countable)
    places = places[~np.isin(grams.grams[places], _licence_ngrams(rules.n))]
    share = np.minimum(1.0, rules.max_item_ngrams / np.maximum(grams.counts, 1))
    shares.append(share)
    owners, hashes = grams.documents[places], grams.grams[places]
    taken = (mixed(hashes) >> np.uint64(11)) < share[owners] * 2.0**53
    owners, hashes = owners[taken], hashes[taken]
    order = np.lexsort((hashes, owners))
    owners, hashes = owners[order], hashes[order]
    new = np.ones(len(owners), bool)
    new[1:] = (owners[1:] != owners[:-1]) | (hashes[1:] != hashes[:-1])
    return owners[new] + begin, hashes[new]


def _short(grams: WordGrams, begin: int, rules: OverlapRules) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(item, hash of all words, whether the whole document has to be equal) of items that are too short for n-grams."""
    texts, hashes = grams.text_sequences()
    lettered = np.bincount(grams.documents[grams.lettered_words()], minlength=grams.texts)[texts]
    enough = lettered >= rules.min_words
    return texts[enough] + begin, hashes[enough], (grams.lengths[texts] < rules.min_paragraph_words)[enough]


@functools.cache
def _licence_ngrams(n: int) -> np.ndarray:
    grams = WordGrams(LICENCE_NOTICES, n)
    return grams.grams[grams.whole]


def _inverted(owners: np.ndarray, grams: np.ndarray, items: int) -> dict[str, np.ndarray]:
    order = np.lexsort((owners, grams))
    keys, first = np.unique(grams[order].astype(np.uint64), return_index=True)
    return {
        "keys": keys,
        "first": np.concatenate([first, [len(grams)]]).astype(np.int64),
        "postings": owners[order].astype(np.int32),
        "totals": np.bincount(owners.astype(np.int64), minlength=items),
    }


def _first_of_each(keys: np.ndarray, items: np.ndarray, whole: np.ndarray) -> dict[str, np.ndarray]:
    unique, first = np.unique(keys, return_index=True)
    return {
        "short_keys": unique,
        "short_items": items[first].astype(np.int64),
        "short_whole": whole[first].astype(bool),
    }


def _joined(parts: list, columns: int) -> list[np.ndarray]:
    return [
        np.concatenate([part[column] for part in parts]) if parts else np.zeros(0, np.int64)
        for column in range(columns)
    ]
