"""The sample that the reference judges: bounded, the same for any batches, and nothing wrong in it passes."""

import dataclasses

import numpy as np
import polars as pl
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.tokens.encoder import Rows
from marin_core.data.tokens.judge import MAX_BYTES, MAX_DOCUMENT_BYTES, MAX_DOCUMENTS, Sample, Sampled, judge
from marin_core.errors import MarinError

SPELLED = "<|end|>"
LENGTHS = st.lists(st.integers(0, 30_000), min_size=1, max_size=60)


@given(lengths=LENGTHS, first_batch=st.integers(1, 40), second_batch=st.integers(1, 40))
@settings(deadline=None, max_examples=50)
def test_the_sample_depends_on_the_documents_alone_and_is_bounded(
    lengths: list[int], first_batch: int, second_batch: int
) -> None:
    texts = [f"{number} " + "x" * length for number, length in enumerate(lengths)]
    chosen, again = sample(texts, first_batch), sample(texts, second_batch)
    assert [(each.row, each.id) for each in chosen] == [(each.row, each.id) for each in again]
    assert 1 <= len(chosen) <= MAX_DOCUMENTS
    assert sum(min(each.size, MAX_DOCUMENT_BYTES) for each in chosen) <= MAX_BYTES


def test_the_longest_bounded_document_and_those_that_spell_a_control_token_are_in_it() -> None:
    texts = [f"text {number}" for number in range(500)]
    texts[123] = "the longest " * 600
    texts[321] = f"one that spells {SPELLED}"
    texts[42] = "far too long " * 5000
    chosen = {each.row for each in sample(texts, 64)}
    assert {123, 321} <= chosen
    assert len(chosen) == MAX_DOCUMENTS


def test_what_is_written_otherwise_is_a_one_line_error_that_names_shard_document_and_position() -> None:
    chosen = sample([f"text {number}" for number in range(20)], 7)
    judge("source, part", chosen, encode, encode)
    written = chosen[3].written
    assert written is not None
    written.values["input_ids"][4] = 7
    with pytest.raises(MarinError) as refused:
        judge("source, part", chosen, encode, encode)
    message = str(refused.value)
    assert message.startswith(f"source, part: document {chosen[3].id} has 7 at position 4 of input_ids")
    assert "\n" not in message


def test_a_row_that_is_cut_off_is_an_error() -> None:
    (whole,) = sample(["a text"], 1)
    cut = dataclasses.replace(whole, written=Rows(np.array([3]), {"input_ids": np.array([97, 32, 116])}))
    with pytest.raises(MarinError, match="has nothing at position 3 of input_ids, by the reference tokenizer 101"):
        judge("source, part", [cut], encode, encode)


def test_of_a_long_document_the_beginning_is_judged() -> None:
    chosen = sample(["long " * 10_000], 1)
    seen: list[int] = []

    def reference(texts: pl.Series) -> Rows:
        seen.append(len(texts[0].encode()))
        return encode(texts)

    judge("source, part", chosen, encode, reference)
    assert 0 < seen[0] <= MAX_DOCUMENT_BYTES


def encode(texts: pl.Series) -> Rows:
    """Bytes as ids."""
    rows = [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]
    lengths = np.array([len(row) for row in rows], np.int64)
    return Rows(lengths, {"input_ids": np.concatenate([np.empty(0, np.int32), *rows])})


def sample(texts: list[str], batch: int) -> list[Sampled]:
    chosen = Sample("text", [SPELLED])
    documents = pl.DataFrame({"id": [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts], "text": texts})
    for start in range(0, len(texts), batch):
        frame = documents[start : start + batch]
        chosen.offer("train", start, frame, encode(frame["text"]))
    return chosen.documents()
