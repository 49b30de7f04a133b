"""Texts in batches of one shape: documents cut into windows, and several windows packed into a row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Window:
    """Tokens of a document that stand together in a row of a batch. The first is only read; each of the others is
    predicted from those before it: they are the document's from number `first` on."""

    document: int
    first: int
    ids: np.ndarray


@dataclass(frozen=True)
class Batch:
    """Rows of `seq_len` tokens: `tokens` and `segments` (rows, seq_len) int32, `weights` (rows, seq_len) float32, 1
    where the token that follows is predicted. No token attends to another segment. `places` holds (window, row,
    position of its first token)."""

    tokens: np.ndarray
    segments: np.ndarray
    weights: np.ndarray
    places: Sequence[tuple[Window, int, int]]


def windows(head: int, documents: Sequence[np.ndarray], seq_len: int) -> Iterator[Window]:
    """Every token of every document predicted once: the first from `head`, the others from those before it in their
    window. A window holds at most `seq_len` tokens, the first of which is the last of the window before.

    `documents` are token ids, (tokens,) int32.
    """
    for number, ids in enumerate(documents):
        framed = np.concatenate([np.asarray([head], np.int32), ids])
        for begin in range(0, len(ids), seq_len - 1):
            yield Window(number, begin, framed[begin : begin + seq_len])


def batches(windows: Sequence[Window], rows: int, seq_len: int) -> Iterator[Batch]:
    """Windows packed in their order, each row filled until the next does not fit; rows of the last batch may be
    empty."""
    pending: list[list[Window]] = []
    room = 0
    for window in windows:
        if len(window.ids) > room:
            if len(pending) == rows:
                yield _batch(pending, rows, seq_len)
                pending = []
            pending.append([])
            room = seq_len
        pending[-1].append(window)
        room -= len(window.ids)
    if pending:
        yield _batch(pending, rows, seq_len)


def _batch(packed: Sequence[Sequence[Window]], rows: int, seq_len: int) -> Batch:
    tokens = np.zeros((rows, seq_len), np.int32)
    # Padding is a segment of its own.
    segments = np.full((rows, seq_len), seq_len, np.int32)
    weights = np.zeros((rows, seq_len), np.float32)
    places = []
    for row, content in enumerate(packed):
        at = 0
        for segment, window in enumerate(content):
            end = at + len(window.ids)
            tokens[row, at:end], segments[row, at:end], weights[row, at : end - 1] = window.ids, segment, 1
            places.append((window, row, at))
            at = end
    return Batch(tokens, segments, weights, places)
