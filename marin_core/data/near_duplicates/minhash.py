"""MinHash signatures and their bands: documents that share a band's hash are candidates for near-duplicates.

Texts to n-gram hashes is in `flat/ngrams.py`; what is done with candidates is in `stage.py`.
"""

import numpy as np
import polars as pl

from marin_core.data.flat.arrays import Array
from marin_core.data.flat.hashing import mixed
from marin_core.data.flat.ngrams import Cleaning, Grams, batches, gram_hashes
from marin_core.data.near_duplicates.config import MinHashConfig


def signatures(hashes: Array, offsets: Array, config: MinHashConfig) -> Array:
    """uint32[documents, bands · rows] of documents that each have at least one n-gram."""
    from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]

    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        hashes, offsets.astype(np.uint64), config.bands * config.rows, config.seed
    )
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(len(offsets) - 1, config.bands * config.rows)


def band_hashes(texts: pl.Series, config: MinHashConfig) -> tuple[Array, Array]:
    """uint64[documents, bands] and which of the texts these are; texts without an n-gram are left out.

    The band's number is part of its hash: equal hashes are of the same band.
    """
    found, rows = [np.zeros((0, config.bands), np.uint64)], [np.zeros(0, np.int64)]
    for part in batches(texts):
        hashes, offsets = gram_hashes(texts[part], grams_of(config))
        filled = np.flatnonzero(np.diff(offsets) > 0)
        if len(filled):
            starts = np.append(offsets[filled], offsets[-1])
            found.append(banded(signatures(hashes, starts, config), config))
            rows.append(filled + part.start)
    return np.concatenate(found), np.concatenate(rows)


def banded(signature: Array, config: MinHashConfig) -> Array:
    """uint64[documents, bands]: a hash of each band of signatures."""
    values = signature.reshape(-1, config.bands, config.rows).astype(np.uint64)
    hashes = np.zeros(values.shape[:2], np.uint64) + np.arange(1, config.bands + 1, dtype=np.uint64)
    for row in range(config.rows):
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += values[:, :, row]
    return mixed(hashes)


def grams_of(config: MinHashConfig) -> Grams:
    """The n-grams that are sketched."""
    cleaning = Cleaning("blank" if config.unit == "words" else "removed", config.digits)
    return Grams(config.ngram, config.unit, config.text_cap, cleaning)
