"""Validation documents: those that training never sees, in an order of their own, up to a number of bytes."""

from pathlib import Path

import polars as pl
import pytest

from marin_core.data.stages import run_stage
from marin_core.data.tokens.shards import tokenize_stage
from marin_core.errors import MarinError
from marin_core.evals.documents import are_conversations, first_bytes, text_of, validation_texts
from marin_core.store import ArtifactSpec, Store
from tests.data.parts import commit_documents, commit_parts, documents, read_folder, source
from tests.evals.models import TEXTS, commit_tokenizer

SHARE = 0.25
MANY = [f"Document {number}: {'é' * (number % 40)} and {number**3} more.\n" for number in range(300)]


def test_they_are_the_documents_that_the_shards_hold_out(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    spec = ArtifactSpec("curated/test", "curate", "1")
    curated = commit_documents(store, MANY, parts=3, spec=spec)
    tokenizer = commit_tokenizer(store, 270)
    tokenized = ArtifactSpec("tokenized/test", "tokenize", "1", {}, {"curated": spec, "tokenizer": tokenizer})
    with store.writer(tokenized) as writer:
        stage = tokenize_stage(
            source(), curated, store.artifact(tokenizer), SHARE, "document", writer, lambda text: None
        )
        writer.commit(run_stage(stage, writer))
    held_out = read_folder(store.artifact(tokenized), "index/validation")["id"].to_list()
    found = validation_texts("test", curated, SHARE, 10**6)
    assert [each.id for each in found] == held_out
    assert len(held_out) > 40
    assert {each.text for each in found} < set(MANY)
    assert text_of(curated, pl.Series(held_out[3:5])) == {each.id: each.text for each in found[3:5]}


def test_the_first_bytes_are_scored_and_the_last_document_is_cut_at_a_character(tmp_path: Path) -> None:
    curated = commit_documents(Store(str(tmp_path)), MANY, parts=2)
    every = validation_texts("test", curated, 1.0, 10**6)
    assert [each.text for each in every] == documents(MANY)["text"].to_list()
    for limit in (1, 50, 1000, 1001):
        some = validation_texts("test", curated, 1.0, limit)
        assert [each.text for each in some[:-1]] == [each.text for each in every[: len(some) - 1]]
        assert every[len(some) - 1].text.startswith(some[-1].text)
        size = sum(len(each.text.encode()) for each in some)
        assert limit - 1 <= size <= limit
    assert first_bytes("aé", 2) == "a"


def test_a_set_without_documents_is_an_error(tmp_path: Path) -> None:
    curated = commit_documents(Store(str(tmp_path)), TEXTS)
    with pytest.raises(MarinError, match="among the lowest 1e-09 of ids"):
        validation_texts("test", curated, 1e-9, 100)


def test_conversations_are_told_from_texts(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    spec = ArtifactSpec("curated/chat", "curate", "1")
    frame = documents(TEXTS).with_columns(messages=pl.lit("[]"))
    assert are_conversations(commit_parts(store, spec, {"documents": [frame]}))
    assert not are_conversations(commit_documents(store, TEXTS))
