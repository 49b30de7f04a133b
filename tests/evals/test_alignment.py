"""Which bytes tokens cover, whatever the tokenizer, and nats that stay the same in sum."""

from pathlib import Path

import numpy as np
import pytest

from marin_core.data.tokens.encoder import load_reference
from marin_core.data.tokens.tokenizer import TokenizerFiles, read_tokenizer
from marin_core.evals.alignment import AligningTokenizer, ByteLosses, TokenizedText, byte_losses, byte_offsets
from marin_core.store import Store
from tests.evals.models import TEXTS, commit_tokenizer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TokenizerFiles:
    store = Store(str(tmp_path_factory.mktemp("store")))
    return read_tokenizer(store.artifact(commit_tokenizer(store, 300)))


@pytest.mark.parametrize("framing", ["document", "levanter"])
def test_tokens_are_those_of_the_shards_and_cover_every_byte(files: TokenizerFiles, framing: str) -> None:
    reference = load_reference(files)._tokenizer  # pyright: ignore[reportPrivateUsage]
    for text, found in zip(TEXTS, AligningTokenizer(files, framing).tokenize(TEXTS), strict=True):
        suffix = " " if framing == "levanter" else ""
        expected = reference.encode(text + suffix, add_special_tokens=False).ids
        assert found.ids.tolist() == expected[: len(found.ids)]
        assert reference.decode(expected[len(found.ids) :]) in ("", suffix)
        assert found.bytes == found.ends[-1] == len(text.encode())
        assert (np.diff(found.ends) >= 0).all()
        # What a byte-level token spells is what lies between its end and the one before.
        spelled = reference.decode(found.ids.tolist()).removesuffix(suffix)
        assert spelled == text
        if text.isascii():
            lengths = [len(reference.id_to_token(id_)) for id_ in found.ids]
            assert np.diff(found.ends, prepend=0).tolist()[:-1] == lengths[:-1]


def test_no_token_of_a_character_stands_alone(files: TokenizerFiles) -> None:
    for text, found in zip(TEXTS, AligningTokenizer(files, "document").tokenize(TEXTS), strict=True):
        losses = np.random.default_rng(0).exponential(2, len(found.ids)).astype(np.float32)
        pieces = byte_losses(found, losses)
        assert np.isin(pieces.ends, byte_offsets(text)).all()
        assert (np.diff(pieces.ends, prepend=0) > 0).all()
        assert pieces.nats.sum() == pytest.approx(losses.sum())


def test_nats_are_spread_over_the_bytes_of_their_token() -> None:
    # The first and the third token cover nothing of their own.
    tokenized = TokenizedText(np.arange(5, dtype=np.int32), np.asarray([0, 4, 4, 5, 7]), 7)
    pieces = byte_losses(tokenized, np.asarray([1.0, 2.0, 5.0, 3.0, 1.0], np.float32))
    assert pieces.ends.tolist() == [4, 5, 7]
    assert pieces.nats.tolist() == [8.0, 3.0, 1.0]
    assert pieces.cumulated(np.arange(8)).tolist() == [0, 2, 4, 6, 8, 11, 11.5, 12]


def test_two_tokenizers_say_the_same_of_the_whole_text(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for vocab_size in (258, 330):
        files = read_tokenizer(store.artifact(commit_tokenizer(store, vocab_size)))
        for text, found in zip(TEXTS, AligningTokenizer(files, "document").tokenize(TEXTS), strict=True):
            losses = np.ones(len(found.ids), np.float32)
            whole = np.asarray([len(text.encode())])
            assert byte_losses(found, losses).cumulated(whole) == pytest.approx(len(found.ids))


def test_a_text_without_tokens_has_no_losses() -> None:
    empty = TokenizedText(np.zeros(0, np.int32), np.zeros(0, np.int64), 0)
    assert byte_losses(empty, np.zeros(0, np.float32)) is not None
    assert ByteLosses(np.zeros(0, np.int32), np.zeros(0, np.float32)).cumulated(np.asarray([0])).tolist() == [0.0]
