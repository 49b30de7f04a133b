"""Arithmetic on flat arrays that hold many lists end to end, or runs of equal elements."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def offsets_of(lengths: Array) -> Array:
    """int64[n + 1]: where each list begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: Array, lengths: Array) -> Array:
    """The integers of [start, start + length) of each range, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


def run_starts(*columns: Array) -> Array:
    """bool[n]: whether an element differs from the one before it in one of the parallel columns."""
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = False
    for column in columns:
        fresh[1:] |= column[1:] != column[:-1]
    return fresh


def first_of_run(fresh: Array) -> Array:
    """int64[n]: the position at which each element's run begins."""
    return np.flatnonzero(fresh)[np.cumsum(fresh) - 1] if len(fresh) else np.zeros(0, np.int64)


def run_lengths(fresh: Array) -> Array:
    """The length of each run."""
    return np.diff(np.append(np.flatnonzero(fresh), len(fresh)))


def distinct(values: Array) -> Array:
    """The values once each, ascending."""
    values = np.sort(values)
    return values[run_starts(values)]
