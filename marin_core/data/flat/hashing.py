"""64-bit hashes of spans and of sequences, by polynomials modulo 2^64 on flat arrays."""

import functools

import numpy as np

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_BLOCK = 1 << 14


def ngram_hashes(hashes: np.ndarray, n: int) -> np.ndarray:
    """Hash of every n neighbours, uint64 of length max(0, len - n + 1)."""
    count = max(0, len(hashes) - n + 1)
    grams = np.zeros(count, np.uint64)
    for offset in range(n):
        grams *= np.uint64(_BASE)
        grams += hashes[offset : offset + count]
    return mixed(grams)


def mixed(values: np.ndarray) -> np.ndarray:
    """Bits spread over the whole word."""
    values = values ^ (values >> np.uint64(32))
    values *= np.uint64(0xD6E8FEB86659FD93)
    values ^= values >> np.uint64(32)
    return values


def prefix_hashes(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """h[i] = sum of value(code j) * base^j over j < i, modulo 2^64."""
    prefix = np.empty(len(codes) + 1, np.uint64)
    prefix[0] = 0
    low, high = _powers(_BASE)
    for block, start in enumerate(range(0, len(codes), _BLOCK)):
        terms = np.take(values, codes[start : start + _BLOCK])
        terms *= low[: len(terms)]
        terms *= high[block]
        terms[:1] += prefix[start : start + 1]
        np.cumsum(terms, out=prefix[start + 1 : start + 1 + len(terms)])
    return prefix


def span_hashes(prefix: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Hashes of spans, from the prefix hashes: equal characters have an equal hash wherever they are."""
    low, high = _powers(_INVERSE)
    sums = prefix[ends] - prefix[starts]
    sums *= low[starts % _BLOCK]
    sums *= high[starts // _BLOCK]
    return mixed(sums)


@functools.lru_cache(maxsize=2)
def _powers(base: int) -> tuple[np.ndarray, np.ndarray]:
    """(base^i, base^(i * _BLOCK)) modulo 2^64: the product of one of each is any power that a batch needs."""
    low = _cumulative_powers(base, _BLOCK)
    return low, _cumulative_powers(pow(base, _BLOCK, 1 << 64), 1 << 16)


def _cumulative_powers(base: int, count: int) -> np.ndarray:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
