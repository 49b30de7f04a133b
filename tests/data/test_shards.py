"""Token shards: what each split holds, that Levanter reads what the reference encodes, and the same bytes always."""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marin_core.data.sources.declaration import FolderOrigin, Layout, Source
from marin_core.data.stages import run_stage
from marin_core.data.tokens.shards import Framing, check_tokenizer, tokenize_stage
from marin_core.data.tokens.tokenizer import train_tokenizer
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store
from tests.data.parts import commit_parts, identity, run_as_ranks
from tests.reference import load_tokenizer, special_ids

PARTS = 5
DOCUMENTS = 1300
VALIDATION_SHARE = 0.3
CURATED = ArtifactSpec("curated/test", "curate", "1")
TOKENIZER = ArtifactSpec("tokenizer/small", "train_tokenizer", "1", {}, {"test": CURATED})
TOKENIZED = ArtifactSpec("tokenized/test", "tokenize", "1", {}, {"curated": CURATED, "tokenizer": TOKENIZER})
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {% generation %}{{ m['content'] if m['role'] == 'assistant' }}"
    "{% endgeneration %}{{ m['content'] if m['role'] != 'assistant' }}{{ eos_token }}{% endfor %}"
)
Rows = list[list[int]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(str(tmp_path_factory.mktemp("store")))
    commit_inputs(store)
    tokenize(store)
    return store


@pytest.fixture(scope="module")
def splits(store: Store) -> dict[str, Rows]:
    """The token rows of every split, read by Levanter's own cache."""
    return {split: levanter_rows(store.artifact(TOKENIZED), split) for split in ("train", "validation")}


@pytest.fixture(scope="module")
def expected(store: Store) -> dict[str, list[int]]:
    """BOS + ids + EOS of every document by its id, encoded one at a time by the reference implementation."""
    reference = load_tokenizer(store.artifact(TOKENIZER))
    bos, eos = special_ids(store.artifact(TOKENIZER), reference)
    return {
        id_: [bos, *reference.encode(text, add_special_tokens=False).ids, eos]
        for id_, text in curated_table().select("id", "text").iter_rows()
    }


@pytest.mark.parametrize("split", ["train", "validation"])
def test_levanter_reads_back_what_the_reference_encodes(
    split: str, splits: dict[str, Rows], expected: dict[str, list[int]]
) -> None:
    limit = int(VALIDATION_SHARE * 2**32)
    ids = [id_ for id_ in sorted(expected) if (int(id_[:8], 16) < limit) == (split == "validation")]
    assert splits[split] == [expected[id_] for id_ in ids]


def test_train_and_validation_are_disjoint_and_together_complete(
    splits: dict[str, Rows], expected: dict[str, list[int]]
) -> None:
    train, validation = ({tuple(row) for row in splits[split]} for split in ("train", "validation"))
    assert not train & validation
    assert train | validation == {tuple(row) for row in expected.values()}
    assert len(splits["train"]) + len(splits["validation"]) == DOCUMENTS
    assert len(splits["validation"]) / DOCUMENTS == pytest.approx(VALIDATION_SHARE, abs=0.05)


def test_training_sequences_are_the_tokens_one_after_the_other(store: Store, splits: dict[str, Rows]) -> None:
    from levanter.data.text.datasets import TokenSeqDataset
    from levanter.store.cache import TreeCache

    cache = TreeCache.load(store.artifact(TOKENIZED).path("train"), {"input_ids": np.zeros((0,), np.int32)})
    dataset = TokenSeqDataset(cache, 64)
    flat = [id_ for row in splits["train"] for id_ in row]
    length = asyncio.run(dataset.async_len())
    assert length == len(flat) // 64
    sequences = asyncio.run(dataset.get_batch(range(length)))
    assert [id_ for each in sequences for id_ in each["input_ids"].tolist()] == flat[: length * 64]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_index_leads_from_every_row_to_its_document(store: Store, split: str, splits: dict[str, Rows]) -> None:
    tokenized, curated = store.artifact(TOKENIZED), store.artifact(CURATED)
    ledger = tokenized.read_json(f"{split}/shard_ledger.json")
    rows = iter(splits[split])
    for name in ledger["finished_shards"]:
        index = pl.read_parquet(tokenized.read(f"index/{split}/{name}.parquet"))
        assert index.columns == ["id", "part", "row", "tokens", "start"]
        assert len(index) == ledger["shard_rows"][name]
        position = 0
        for id_, part, row, tokens, start in index.iter_rows():
            document = pl.read_parquet(curated.read(part)).row(row, named=True)
            assert document["id"] == id_
            assert (tokens, start) == (len(next(rows)), position)
            position += tokens
        assert position == ledger["field_counts_by_shard"][name]["input_ids"]
    assert next(rows, None) is None


def test_the_summary_and_the_ledgers_count_what_is_in_the_shards(store: Store, splits: dict[str, Rows]) -> None:
    tokenized = store.artifact(TOKENIZED)
    summary = tokenized.record.summary
    for split, rows in splits.items():
        counts = {"documents": len(rows), "tokens": sum(map(len, rows))}
        assert {unit: summary[f"{split}_{unit}"] for unit in counts} == counts
        ledger = tokenized.read_json(f"{split}/shard_ledger.json")
        assert (ledger["layout"], ledger["is_finished"]) == ("sharded", True)
        assert ledger["finished_shards"] == [f"part-{number:05d}-of-{PARTS:05d}" for number in range(PARTS)]
        assert ledger["total_num_rows"] == sum(ledger["shard_rows"].values()) == counts["documents"]
        assert ledger["field_counts"] == {"input_ids": counts["tokens"]}
        assert ledger["metadata"]["preprocessor_metadata"] == summary["tokenizer"]
    text_bytes = curated_table()["text"].str.len_bytes().sum()
    tokens = summary["train_tokens"] + summary["validation_tokens"]
    assert summary["bytes_per_token"] == pytest.approx(text_bytes / tokens, abs=1e-3)
    assert summary["documents_left_out"] == 0
    assert summary["documents_judged"] >= PARTS


def test_the_identity_of_the_tokenizer_goes_with_the_shards(store: Store) -> None:
    tokenizer = store.artifact(TOKENIZER)
    (sha256,) = [file.sha256 for file in tokenizer.record.files if file.path == "tokenizer.json"]
    assert store.artifact(TOKENIZED).record.summary["tokenizer"] == {
        "sha256": sha256,
        "vocab_size": 400,
        "special_tokens": {"<|begin_of_text|>": 0, "<|end_of_text|>": 1},
        "bos": 0,
        "eos": 1,
        "framing": "document",
    }
    check_tokenizer(store.artifact(TOKENIZED), tokenizer)


def test_shards_of_another_tokenizer_are_a_one_line_error(tmp_path: Path, store: Store) -> None:
    other = Store(str(tmp_path))
    commit_inputs(other, vocab_size=380)
    with pytest.raises(
        MarinError, match=r"tokenized/test was tokenized with sha256 .*materialize tokenized/test"
    ) as refused:
        check_tokenizer(store.artifact(TOKENIZED), other.artifact(TOKENIZER))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("framing", ["document", "levanter"])
def test_rows_are_those_of_levanter_s_own_tokenization(tmp_path: Path, store: Store, framing: Framing) -> None:
    from levanter.data.text._batch_tokenizer import BatchTokenizer
    from levanter.tokenizers import load_tokenizer as levanter_tokenizer

    again = Store(str(tmp_path))
    commit_inputs(again, store.artifact(TOKENIZER))
    rows = levanter_rows(tokenize(again, framing=framing), "validation")
    limit = int(VALIDATION_SHARE * 2**32)
    held_out = [text for id_, text in curated_table().iter_rows() if int(id_[:8], 16) < limit]
    processor = BatchTokenizer(levanter_tokenizer(store.artifact(TOKENIZER).url))
    blank = load_tokenizer(store.artifact(TOKENIZER)).encode(" ").ids
    compared = 0
    for text, row, levanter in zip(held_out, rows, processor([{"text": text} for text in held_out]), strict=True):
        if "<|" not in text:
            assert (row if framing == "levanter" else [*row[:-1], *blank, row[-1]]) == levanter["input_ids"]
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("world", [2, 5])
def test_any_number_of_ranks_writes_the_same_bytes(tmp_path: Path, store: Store, world: int) -> None:
    again = Store(str(tmp_path / "another place"))
    commit_inputs(again)
    assert tokenize(again, world=world).record.files == store.artifact(TOKENIZED).record.files


def test_a_killed_build_goes_on_to_the_same_bytes(tmp_path: Path, store: Store) -> None:
    again = Store(str(tmp_path))
    commit_inputs(again)
    command = [sys.executable, "-m", "tests.data.test_shards", str(tmp_path)]
    running = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    marker = Path(again.url(TOKENIZED) + "/.work") / "done" / "encode" / "00001.json"
    deadline = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert marker.exists() and again.record(TOKENIZED.name, TOKENIZED.fingerprint) is None
    # Nobody is left to give the lease back.
    Path(again.url(TOKENIZED) + ".lease").unlink()
    first = Path(again.url(TOKENIZED)) / "index" / "train" / f"part-00000-of-{PARTS:05d}.parquet"
    written = first.stat().st_mtime_ns
    assert tokenize(again).record.files == store.artifact(TOKENIZED).record.files
    assert first.stat().st_mtime_ns == written


def test_what_does_not_read_back_fails_before_the_record(tmp_path: Path, store: Store) -> None:
    again = Store(str(tmp_path))
    commit_inputs(again, store.artifact(TOKENIZER))
    with again.writer(TOKENIZED, resumable=True) as writer:
        stage = stage_of(again, writer)

        def lose_metadata(phase: Any) -> None:
            from marin_core.data.stages import run_items

            if phase.name == "verify":
                writer.fs.rm(writer.path("train", f"part-00003-of-{PARTS:05d}", "input_ids", "data", "zarr.json"))
            run_items(phase, writer)

        with pytest.raises(MarinError, match=r"cannot be read back.*build the shards again") as refused:
            run_stage(stage, writer, lose_metadata)
    assert "\n" not in str(refused.value)


def test_a_document_stays_in_its_split_when_others_come(tmp_path: Path, store: Store, splits: dict[str, Rows]) -> None:
    fewer = Store(str(tmp_path))
    commit_inputs(fewer, store.artifact(TOKENIZER), documents=500)
    rows = levanter_rows(tokenize(fewer), "validation")
    assert 0 < len(rows) < len(splits["validation"])
    assert [row for row in rows if row not in splits["validation"]] == []


def test_an_evaluation_source_is_all_validation(tmp_path: Path, store: Store, expected: dict[str, list[int]]) -> None:
    again = Store(str(tmp_path))
    commit_inputs(again, store.artifact(TOKENIZER))
    tokenized = tokenize(again, role="evaluation")
    assert levanter_rows(tokenized, "validation") == [expected[id_] for id_ in sorted(expected)]
    assert (tokenized.record.summary["train_documents"], tokenized.record.summary["train_tokens"]) == (0, 0)
    check_tokenizer(tokenized, store.artifact(TOKENIZER))


@pytest.mark.parametrize(("share", "split"), [(0.0, "validation"), (1.0, "train")])
def test_an_empty_split_is_a_one_line_error(tmp_path: Path, store: Store, share: float, split: str) -> None:
    again = Store(str(tmp_path))
    commit_inputs(again, store.artifact(TOKENIZER), documents=20)
    with pytest.raises(MarinError, match=f"tokenized/test: no document falls into the {split} split") as refused:
        tokenize(again, share=share)
    assert "\n" not in str(refused.value)


def test_a_vocabulary_of_whole_words_is_tokenized_by_the_reference(tmp_path: Path) -> None:
    """What the fast library cannot load trains all the same, and a spelled control token is still text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word for text in curated_table(200)["text"] for word in text.split()} - {"<|end_of_text|>"}
    pieces = ["[UNK]", "<|end_of_text|>", *sorted(words)]
    tokenizer = Tokenizer(models.WordLevel({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<|end_of_text|>"])
    store = Store(str(tmp_path))
    commit_inputs(store, documents=200)
    # In place of the trained one.
    store.fs.rm(store.url(TOKENIZER), recursive=True)
    with store.writer(TOKENIZER) as writer:
        with writer.open("tokenizer.json") as file:
            file.write(tokenizer.to_str().encode())
        writer.write_json("tokenizer_config.json", {"eos_token": "<|end_of_text|>"})
        writer.commit({})
    tokenized = tokenize(store)
    for split in ("train", "validation"):
        for row in levanter_rows(tokenized, split):
            assert row.count(1) == 1 and row[-1] == 1


def test_conversations_become_ids_and_masks(tmp_path: Path, store: Store) -> None:
    from levanter.store.cache import TreeCache

    again = Store(str(tmp_path))
    tokenizer = store.artifact(TOKENIZER)
    speakers = ("user", "assistant")
    chats = [[{"role": r, "content": f"{n} {r} <|end_of_text|>"} for r in speakers] for n in range(40)]
    chats.append([{"role": "user", "content": "is nobody there"}])
    table = pl.DataFrame(
        {"id": [identity(json.dumps(c)) for c in chats], "text": ["…"] * 41, "messages": [json.dumps(c) for c in chats]}
    ).sort("id")
    commit_parts(again, CURATED, {"documents": [table[:20], table[20:]]})
    commit_tokenizer(again, tokenizer, {"chat_template": TEMPLATE})
    tokenized = tokenize(again, layout=Layout("jsonl", messages_field="messages"))
    assert tokenized.record.summary["documents_left_out"] == 1
    check_tokenizer(tokenized, again.artifact(TOKENIZER))
    other = Store(str(tmp_path / "other"))
    commit_parts(other, CURATED, {"documents": [table]})
    commit_tokenizer(other, tokenizer, {"chat_template": f"{TEMPLATE} "})
    with pytest.raises(MarinError, match="was tokenized with chat_template"):
        check_tokenizer(tokenized, other.artifact(TOKENIZER))
    exemplar = {"input_ids": np.zeros((0,), np.int32), "assistant_masks": np.zeros((0,), np.int32)}
    reference, found = load_tokenizer(tokenizer), []
    for split in ("train", "validation"):
        cache: Any = TreeCache.load(tokenized.path(split), exemplar)
        for row in cache:
            said = row["input_ids"][row["assistant_masks"] == 1]
            found.append(reference.decode(said, skip_special_tokens=False))
            assert row["input_ids"].tolist().count(1) == len(speakers)
    assert sorted(found) == sorted(f"{n} assistant <|end_of_text|>" for n in range(40))


def curated_table(documents: int = DOCUMENTS) -> pl.DataFrame:
    """Texts of three words and more, one of which spells a special token, sorted by id as curation does."""
    letters = random.Random(0)
    words = ["".join(letters.choices("etaoinshrdlu", k=letters.randint(2, 8))) for _ in range(300)]
    texts = ["a text that spells <|end_of_text|> and goes on"]
    texts += [
        f"{number} {' '.join(letters.choices(words, k=letters.randint(2, 40)))}" for number in range(documents - 1)
    ]
    return pl.DataFrame({"id": [identity(text) for text in texts], "text": texts}).sort("id")


def commit_inputs(
    store: Store, tokenizer: Artifact | None = None, documents: int = DOCUMENTS, vocab_size: int = 400
) -> None:
    """Commit curated documents, the last part of them empty, and a tokenizer, trained unless there is one."""
    table = curated_table(documents)
    bounds = [len(table) * part // (PARTS - 1) for part in range(PARTS)]
    frames = [table[begin:end] for begin, end in itertools.pairwise(bounds)]
    commit_parts(store, CURATED, {"documents": [*frames, table[:0]]})
    if tokenizer is not None:
        commit_tokenizer(store, tokenizer)
        return
    with store.writer(TOKENIZER) as writer:
        writer.commit(train_tokenizer({"test": store.artifact(CURATED)}, vocab_size, 1_000_000, writer, print))


def commit_tokenizer(store: Store, tokenizer: Artifact, config: dict[str, Any] | None = None) -> None:
    with store.writer(TOKENIZER) as writer:
        with writer.open("tokenizer.json") as file:
            file.write(tokenizer.read("tokenizer.json"))
        writer.write_json("tokenizer_config.json", {**tokenizer.read_json("tokenizer_config.json"), **(config or {})})
        writer.commit(tokenizer.record.summary)


def stage_of(
    store: Store,
    workspace: Any,
    share: float = VALIDATION_SHARE,
    framing: Framing = "document",
    role: Any = "train",
    layout: Layout | None = None,
    log: Callable[[str], None] = print,
) -> Any:
    source = Source("test", FolderOrigin("nowhere"), "MIT", layout or Layout("jsonl"), role=role)
    inputs = store.artifact(CURATED), store.artifact(TOKENIZER)
    return tokenize_stage(source, *inputs, share, framing, workspace, log)


def tokenize(store: Store, world: int = 1, **options: Any) -> Artifact:
    with store.writer(TOKENIZED, resumable=True) as writer:
        writer.commit(run_as_ranks(stage_of(store, writer, **options), writer, world))
    return store.artifact(TOKENIZED)


def levanter_rows(tokenized: Artifact, split: str) -> Rows:
    from levanter.store.cache import TreeCache

    cache: Any = TreeCache.load(tokenized.path(split), {"input_ids": np.zeros((0,), np.int32)})
    return [row["input_ids"].tolist() for row in cache.get_batch_sync(range(len(cache)))]


def log_slowly(line: str) -> None:
    """Leaves whoever watches the build the time to kill it after a part."""
    time.sleep(0.5)


if __name__ == "__main__":
    tokenize(Store(sys.argv[1]), log=log_slowly)
