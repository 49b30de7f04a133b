"""Tokenizers: what the laptop's is trained on, what it does with special tokens in text, who can load it; and those
that are fetched."""

import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marin_core.data.tokens.tokenizer import (
    BOS,
    EOS,
    fetch_tokenizer,
    read_tokenizer,
    train_tokenizer,
)
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store
from tests.data.parts import commit_parts
from tests.reference import load_tokenizer, special_ids

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


@pytest.mark.parametrize("parts", [2, 7])
def test_the_sample_does_not_depend_on_the_number_of_parts(
    tmp_path: Path, texts: list[str], tokenizer: Artifact, parts: int
) -> None:
    again = train(Store(str(tmp_path)), dict.fromkeys(SOURCES, texts), parts=parts)
    assert hashes(again.record) == hashes(tokenizer.record)


def test_a_tokenizer_of_a_folder_is_taken_as_it_is(tmp_path: Path, tokenizer: Artifact) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    folder = folder_of(tokenizer, tmp_path / "published")
    (folder / "chat_template.jinja").write_text(template)
    fetched = fetch(Store(str(tmp_path / "store")), vocab_size=VOCAB_SIZE, folder=str(folder), eos_token=EOS)
    assert fetched.read("tokenizer.json") == tokenizer.read("tokenizer.json")
    assert fetched.record.summary["sha256"] == hashes(fetched.record)
    assert fetched.record.summary["vocab_size"] == VOCAB_SIZE
    read = read_tokenizer(fetched)
    assert (read.bos_id, read.eos_id, read.chat_template) == (0, 1, template)


def test_a_tokenizer_of_the_hub_is_taken_at_the_commit(tmp_path: Path, tokenizer: Artifact) -> None:
    """The cache that the hub's client leaves is what it finds without a network."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--lab--tokenizer"
    folder_of(tokenizer, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "v1").write_text(commit)
    script = (
        "import fsspec, json, sys\n"
        "from marin_core.data.tokens.tokenizer import fetch_tokenizer\n"
        "from marin_core.store import Workspace\n"
        "workspace = Workspace(sys.argv[1], fsspec.filesystem('file'), lambda: None)\n"
        f"found = fetch_tokenizer(repository='lab/tokenizer', revision='v1', vocab_size={VOCAB_SIZE},"
        "workspace=workspace, log=lambda line: None)\n"
        "print(json.dumps(found))"
    )
    offline = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", script, str(tmp_path / "fetched")]
    ran = subprocess.run(command, env=offline, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["revision"] == commit
    assert (tmp_path / "fetched" / "tokenizer.json").read_bytes() == tokenizer.read("tokenizer.json")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"vocab_size": 5}, "vocab_size is 400, the profile declares 5"),
        ({"bos_token": "<s>"}, "bos_token is '<|begin_of_text|>', the profile declares '<s>'"),
        ({"eos_token": "</s>"}, "eos_token is '<|end_of_text|>', the profile declares '</s>'"),
    ],
)
def test_a_tokenizer_that_is_not_as_declared_is_a_one_line_error(
    tmp_path: Path, tokenizer: Artifact, declared: dict[str, Any], message: str
) -> None:
    folder = folder_of(tokenizer, tmp_path / "published")
    with pytest.raises(MarinError, match=re.escape(message)) as refused:
        fetch(Store(str(tmp_path / "store")), **{"folder": str(folder), "vocab_size": VOCAB_SIZE, **declared})
    assert "\n" not in str(refused.value)


def test_a_folder_without_the_files_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(MarinError, match=r"has no tokenizer\.json") as refused:
        fetch(Store(str(tmp_path / "store")), vocab_size=VOCAB_SIZE, folder=str(tmp_path))
    assert "\n" not in str(refused.value)


def test_a_tokenizer_without_an_end_of_document_is_a_one_line_error(tmp_path: Path, tokenizer: Artifact) -> None:
    folder = folder_of(tokenizer, tmp_path / "published")
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(MarinError, match="eos_token None, which is not a special token") as refused:
        fetch(Store(str(tmp_path / "store")), vocab_size=VOCAB_SIZE, folder=str(folder))
    assert "\n" not in str(refused.value)


def hashes(record: ArtifactRecord) -> dict[str, str]:
    return {file.path: file.sha256 for file in record.files}


def folder_of(tokenizer: Artifact, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for entry in tokenizer.record.files:
        (folder / entry.path).write_bytes(tokenizer.read(entry.path))
    return folder


def fetch(store: Store, **declared: Any) -> Artifact:
    spec = ArtifactSpec("tokenizer/published", "fetch_tokenizer", "1")
    with store.writer(spec) as writer:
        writer.commit(fetch_tokenizer(**declared, workspace=writer, log=print))
    return store.artifact(spec)


def train(store: Store, sources: dict[str, Sequence[str]], sample_bytes: int = 1_000_000, parts: int = 3) -> Artifact:
    """Commit the texts as curated sources, in their order, and train a tokenizer on them."""
    inputs = {name: ArtifactSpec(f"curated/{name}", "curate", "1") for name in sources}
    curated = {}
    for name, spec in inputs.items():
        texts = sources[name]
        bounds = [len(texts) * part // parts for part in range(parts + 1)]
        frames = [pl.DataFrame({"text": texts[begin:end]}) for begin, end in itertools.pairwise(bounds)]
        curated[name] = commit_parts(store, spec, {"documents": frames})
    spec = ArtifactSpec("tokenizer/small", "train_tokenizer", "1", {"vocab_size": VOCAB_SIZE}, inputs)
    with store.writer(spec) as writer:
        writer.commit(train_tokenizer(curated, VOCAB_SIZE, sample_bytes, writer, print))
    return store.artifact(spec)
