"""The laptop's tokenizer: what it is trained on, what it does with special tokens in text, and who can load it."""

import random
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from marin_core.data.tokenizer import BOS, EOS, load_tokenizer, special_ids, train_tokenizer
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store

VOCAB_SIZE = 400
SOURCES = ("code", "prose")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Sixty texts of words that a vocabulary can be learned from."""
    letters = random.Random(0)
    words = ["".join(letters.choices("etaoinshrdlu", k=letters.randint(2, 8))) for _ in range(300)]
    return [" ".join(letters.choices(words, k=50)) for _ in range(60)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Artifact:
    return train(Store(str(tmp_path_factory.mktemp("store"))), dict.fromkeys(SOURCES, texts))


@pytest.mark.parametrize("special", [BOS, EOS])
def test_text_that_spells_a_special_token_gets_ordinary_ids_and_decodes_back(tokenizer: Artifact, special: str) -> None:
    encoder = load_tokenizer(tokenizer)
    text = f"before {special} after{special}"
    ids = encoder.encode(text, add_special_tokens=False).ids
    assert not set(ids) & set(special_ids(tokenizer, encoder))
    assert encoder.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("text", ["", " ", "  two  blanks\n\ttab ", "Zürich 東京 🦙 \u0000 \x7f", "\r\n", "e\u0301"])
def test_every_text_decodes_back(tokenizer: Artifact, text: str) -> None:
    encoder = load_tokenizer(tokenizer)
    assert encoder.decode(encoder.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


def test_text_like_the_sample_takes_fewer_tokens_than_bytes(tokenizer: Artifact, texts: list[str]) -> None:
    ids = load_tokenizer(tokenizer).encode(texts[0]).ids
    assert len(ids) < len(texts[0]) / 1.5


def test_special_tokens_are_the_first_ids_and_the_vocabulary_has_the_declared_size(tokenizer: Artifact) -> None:
    encoder = load_tokenizer(tokenizer)
    assert special_ids(tokenizer, encoder) == (0, 1)
    assert encoder.get_vocab_size() == VOCAB_SIZE == tokenizer.record.summary["vocab_size"]
    assert max(encoder.get_vocab().values()) == VOCAB_SIZE - 1


def test_transformers_loads_the_same_tokenizer(tokenizer: Artifact, texts: list[str]) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer.url)
    assert (loaded.bos_token_id, loaded.eos_token_id) == special_ids(tokenizer, load_tokenizer(tokenizer))
    assert len(loaded) == VOCAB_SIZE
    assert loaded(texts[0])["input_ids"] == load_tokenizer(tokenizer).encode(texts[0]).ids


def test_two_fresh_stores_give_the_same_bytes(tmp_path: Path, texts: list[str], tokenizer: Artifact) -> None:
    again = train(Store(str(tmp_path)), dict.fromkeys(reversed(SOURCES), texts))
    assert again.record.files == tokenizer.record.files


def test_the_sample_is_the_first_bytes_of_every_source(tmp_path: Path, texts: list[str]) -> None:
    sample_bytes = sum(len(text) for text in texts[:40])
    whole = train(Store(str(tmp_path / "whole")), {"code": texts}, sample_bytes)
    cut = train(Store(str(tmp_path / "cut")), {"code": texts[:40]})
    assert whole.record.summary["sample_documents"] == 40
    assert hashes(whole.record) == hashes(cut.record)


@pytest.mark.parametrize(
    ("text", "sample_bytes"),
    [
        pytest.param("one short text", 1_000_000, id="little text"),
        pytest.param("word " * 1000, 100, id="little sample"),
    ],
)
def test_a_sample_that_is_too_small_is_a_one_line_error(tmp_path: Path, text: str, sample_bytes: int) -> None:
    with pytest.raises(MarinError, match=rf"entries, not {VOCAB_SIZE}; raise sample_bytes or lower vocab") as refused:
        train(Store(str(tmp_path)), {"code": [text]}, sample_bytes)
    assert "\n" not in str(refused.value)


def hashes(record: ArtifactRecord) -> dict[str, str]:
    return {file.path: file.sha256 for file in record.files}


def train(store: Store, sources: dict[str, Sequence[str]], sample_bytes: int = 1_000_000) -> Artifact:
    """Commit the texts as curated sources, in their order, and train a tokenizer on them."""
    inputs = {name: ArtifactSpec(f"curated/{name}", "curate", "1") for name in sources}
    for name, spec in inputs.items():
        with store.writer(spec) as writer:
            with writer.open("documents.parquet") as file:
                pl.DataFrame({"text": sources[name]}).write_parquet(file)
            writer.commit({})
    curated = {name: store.artifact(spec) for name, spec in inputs.items()}
    spec = ArtifactSpec("tokenizer/small", "train_tokenizer", "1", {"vocab_size": VOCAB_SIZE}, inputs)
    with store.writer(spec) as writer:
        writer.commit(train_tokenizer(curated, VOCAB_SIZE, sample_bytes, writer, print))
    return store.artifact(spec)
