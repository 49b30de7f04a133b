"""Token shards: which documents each split holds, that Levanter reads back what was encoded, and equal bytes."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import xxhash

from marin_core.data.curate import read_documents
from marin_core.data.shards import tokenize
from marin_core.data.tokenizer import load_tokenizer, special_ids, train_tokenizer
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store

# More documents than are encoded at a time, so that a split takes several batches.
DOCUMENTS = 1300
VALIDATION_SHARE = 0.2
CURATED = ArtifactSpec("curated/test", "curate", "1")
TOKENIZER = ArtifactSpec("tokenizer/small", "train_tokenizer", "1", {}, {"test": CURATED})
TOKENIZED = ArtifactSpec("tokenized/test", "tokenize", "1", {}, {"curated": CURATED, "tokenizer": TOKENIZER})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(str(tmp_path_factory.mktemp("store")))
    tokenized(store)
    return store


@pytest.fixture(scope="module")
def splits(store: Store) -> dict[str, list[list[int]]]:
    """The token rows of every split, read by Levanter's own cache."""
    from levanter.store.cache import TreeCache

    exemplar = {"input_ids": np.zeros((0,), dtype=np.int32)}
    caches = {
        split: TreeCache.load(store.artifact(TOKENIZED).path(split), exemplar) for split in ("train", "validation")
    }
    return {split: [row["input_ids"].tolist() for row in cache] for split, cache in caches.items()}


@pytest.fixture(scope="module")
def expected(store: Store) -> dict[str, list[int]]:
    """BOS + ids + EOS of every document by its id, encoded one at a time by the reference implementation."""
    from tokenizers import Tokenizer

    reference = Tokenizer.from_file(store.artifact(TOKENIZER).path("tokenizer.json"))
    reference.encode_special_tokens = True
    bos, eos = special_ids(store.artifact(TOKENIZER), load_tokenizer(store.artifact(TOKENIZER)))
    return {
        row["id"]: [bos, *reference.encode(row["text"], add_special_tokens=False).ids, eos]
        for row in read_documents(store.artifact(CURATED)).iter_rows(named=True)
    }


def test_train_and_validation_are_disjoint_and_together_complete(
    splits: dict[str, list[list[int]]], expected: dict[str, list[int]]
) -> None:
    train, validation = ({tuple(row) for row in splits[split]} for split in ("train", "validation"))
    assert not train & validation
    assert train | validation == {tuple(row) for row in expected.values()}
    assert len(splits["train"]) + len(splits["validation"]) == DOCUMENTS


@pytest.mark.parametrize("split", ["train", "validation"])
def test_levanter_reads_back_what_the_reference_encodes(
    split: str, splits: dict[str, list[list[int]]], expected: dict[str, list[int]]
) -> None:
    limit = int(VALIDATION_SHARE * 2**32)
    ids = [id_ for id_ in sorted(expected) if (int(id_[:8], 16) < limit) == (split == "validation")]
    assert splits[split] == [expected[id_] for id_ in ids]


def test_the_summary_counts_what_is_in_the_shards(store: Store, splits: dict[str, list[list[int]]]) -> None:
    summary = store.artifact(TOKENIZED).record.summary
    counts: dict[str, Any] = {}
    for split, rows in splits.items():
        counts |= {f"{split}_documents": len(rows), f"{split}_tokens": sum(len(row) for row in rows)}
    text_bytes = sum(len(text.encode()) for text in read_documents(store.artifact(CURATED))["text"])
    counts["bytes_per_token"] = pytest.approx(
        text_bytes / (counts["train_tokens"] + counts["validation_tokens"]), abs=1e-3
    )
    assert summary == counts


def test_the_validation_share_is_held_out(splits: dict[str, list[list[int]]]) -> None:
    assert len(splits["validation"]) / DOCUMENTS == pytest.approx(VALIDATION_SHARE, abs=0.05)


def test_a_document_stays_in_its_split_when_others_come(
    tmp_path: Path, store: Store, splits: dict[str, list[list[int]]]
) -> None:
    from levanter.store.cache import TreeCache

    fewer = tokenized(Store(str(tmp_path)), store.artifact(TOKENIZER), documents=500)
    exemplar = {"input_ids": np.zeros((0,), dtype=np.int32)}
    rows = [row["input_ids"].tolist() for row in TreeCache.load(fewer.path("validation"), exemplar)]
    assert 0 < len(rows) < len(splits["validation"])
    assert [row for row in rows if row not in splits["validation"]] == []


def test_two_fresh_stores_tokenize_to_the_same_bytes(tmp_path: Path, store: Store) -> None:
    again = tokenized(Store(str(tmp_path / "another place")))
    assert again.record.files == store.artifact(TOKENIZED).record.files
    assert again.record.content == store.artifact(TOKENIZED).record.content


@pytest.mark.parametrize(("share", "split"), [(0.0, "validation"), (1.0, "train")])
def test_an_empty_split_is_a_one_line_error(tmp_path: Path, store: Store, share: float, split: str) -> None:
    with pytest.raises(MarinError, match=f"tokenized/test: no document falls into the {split} split") as refused:
        tokenized(Store(str(tmp_path)), store.artifact(TOKENIZER), documents=20, share=share)
    assert "\n" not in str(refused.value)


def curated_table(documents: int) -> pl.DataFrame:
    """Texts of three words and more, one of which spells a special token, sorted by id as curation does."""
    letters = random.Random(0)
    words = ["".join(letters.choices("etaoinshrdlu", k=letters.randint(2, 8))) for _ in range(300)]
    texts = ["a text that spells <|end_of_text|> and goes on"]
    texts += [
        f"{number} {' '.join(letters.choices(words, k=letters.randint(2, 40)))}" for number in range(documents - 1)
    ]
    table = pl.DataFrame({"id": [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts], "text": texts})
    return table.sort("id")


def tokenized(
    store: Store, tokenizer: Artifact | None = None, documents: int = DOCUMENTS, share: float = VALIDATION_SHARE
) -> Artifact:
    """Commit curated documents, a tokenizer unless there is one, and the token shards of the documents."""
    with store.writer(CURATED) as writer:
        with writer.open("documents.parquet") as file:
            curated_table(documents).write_parquet(file)
        writer.commit({})
    curated = store.artifact(CURATED)
    with store.writer(TOKENIZER) as writer:
        if tokenizer is None:
            writer.commit(train_tokenizer({"test": curated}, 400, 1_000_000, writer, print))
        else:
            for file in tokenizer.record.files:
                with tokenizer.open(file.path) as source, writer.open(file.path) as target:
                    target.write(source.read())
            writer.commit(tokenizer.record.summary)
    with store.writer(TOKENIZED) as writer:
        writer.commit(tokenize("test", curated, store.artifact(TOKENIZER), share, writer, print))
    return store.artifact(TOKENIZED)
