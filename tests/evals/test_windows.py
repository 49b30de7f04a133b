"""Every token of every document is predicted once, from the tokens before it in its window and from no other's."""

import numpy as np
import pytest

from marin_core.evals.windows import batches, windows

HEAD = -1


@pytest.mark.parametrize("seq_len", [2, 7, 32])
def test_each_token_is_predicted_once_from_its_own_document(seq_len: int) -> None:
    random = np.random.default_rng(seq_len)
    # Every token is its document and its number, so that it says where it belongs.
    documents = [np.arange(size, dtype=np.int32) + 1000 * n for n, size in enumerate(random.integers(1, 90, 40))]
    seen: dict[int, int] = {}
    for batch in batches(list(windows(HEAD, documents, seq_len)), rows=4, seq_len=seq_len):
        assert batch.tokens.shape == batch.segments.shape == batch.weights.shape == (4, seq_len)
        predicted = np.argwhere(batch.weights == 1)
        for row, at in predicted:
            token, before = batch.tokens[row, at + 1], batch.tokens[row, at]
            assert before == (HEAD if token % 1000 == 0 else token - 1)
            assert batch.segments[row, at] == batch.segments[row, at + 1]
            seen[int(token)] = seen.get(int(token), 0) + 1
        placed = [batch.tokens[row, at + 1 : at + len(window.ids)].tolist() for window, row, at in batch.places]
        expected = [
            documents[window.document][window.first : window.first + len(window.ids) - 1].tolist()
            for window, _, _ in batch.places
        ]
        assert placed == expected
        assert int(batch.weights.sum()) == sum(map(len, placed))
    assert seen == {int(token): 1 for ids in documents for token in ids}


def test_windows_share_rows() -> None:
    documents = [np.zeros(7, np.int32)] * 16
    packed = list(batches(list(windows(HEAD, documents, 32)), rows=4, seq_len=32))
    assert len(packed) == 1
    # Four windows of 8 tokens fill a row; those of one row are different segments.
    assert all(sorted(set(row)) == [0, 1, 2, 3] for row in packed[0].segments.tolist())
