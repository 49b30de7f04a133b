"""Conversations: equal to Levanter's own where nothing is spelled, ordinary ids where something is, and masks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from marin_core.data.tokens.chat import ChatEncoder
from marin_core.data.tokens.encoder import load_reference
from marin_core.data.tokens.tokenizer import TokenizerFiles, parse_tokenizer
from marin_core.errors import MarinError

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
BOS, EOS, START, END, TURN = SPECIAL
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim }}{{ '<|eot_id|>' }}"
    "{% endgeneration %}{% else %}{{ message['content'] | trim }}{{ '<|eot_id|>' }}{% endif %}{% endfor %}"
)
# No token between the two speakers: what one says and the other may share a word of the vocabulary.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}"
    "{% endgeneration %}{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
)
Message = dict[str, str]

WORDS = st.sampled_from(["hello", " there", "it's", "12345", "\n\n", "  ", "naïve", "日本語", "😀👩‍👧", "e\u0301", "a"])
# Levanter cannot mark an assistant who says nothing in the middle of a token.
CONTENT = st.lists(WORDS, min_size=1, max_size=8).map("".join)


def conversations(content: st.SearchStrategy[str]) -> st.SearchStrategy[list[Message]]:
    message = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": content})
    return st.lists(message, min_size=1, max_size=5)


@pytest.fixture(scope="module", params=[TEMPLATE, PLAIN_TEMPLATE], ids=["turns", "plain"])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer that has a chat template."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["hello there it's naïve 日本語 user assistant 12345 hello there"] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "chat_template": request.param,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@given(chats=st.lists(conversations(CONTENT), min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_ids_and_masks_are_levanter_s_where_nothing_is_spelled(published: Path, chats: list[list[Message]]) -> None:
    from levanter.data.text.formats import ChatProcessor
    from levanter.tokenizers import load_tokenizer

    processor = ChatProcessor(load_tokenizer(str(published)))
    for chat, (ids, mask) in zip(chats, encode(published, chats), strict=True):
        try:
            (expected,) = processor([{"messages": chat}])
        except ValueError as error:
            assert "did not contain an assistant message" in str(error)
            assert ids == []
            continue
        assert ids == expected["input_ids"].tolist()
        assert mask == expected["assistant_masks"].tolist()


@given(
    chat=conversations(st.lists(st.one_of(WORDS, st.sampled_from(SPECIAL)), max_size=8).map("".join)),
)
@settings(deadline=None, max_examples=100)
def test_spelled_special_tokens_are_ordinary_ids_and_decode_back(published: Path, chat: list[Message]) -> None:
    tokenizer, template = files(published), files(published).chat_template
    ((ids, mask),) = encode(published, [chat])
    if not ids:
        return
    made = [BOS, *[token for _ in chat for token in (START, END, TURN)]] if template == TEMPLATE else []
    assert [id_ for id_ in ids if id_ in tokenizer.special.values()] == [tokenizer.special[token] for token in made]
    reference = Tokenizer.from_file(str(published / "tokenizer.json"))
    strip = str.strip if template == TEMPLATE else str
    contents = [strip(message["content"]) for message in chat]
    assert reference.decode(ids, skip_special_tokens=False) == (
        BOS + "".join(f"{START}{m['role']}{END}\n\n{c}{TURN}" for m, c in zip(chat, contents, strict=True))
        if template == TEMPLATE
        else "".join(contents)
    )
    if template == TEMPLATE:
        said = [c for m, c in zip(chat, contents, strict=True) if m["role"] == "assistant"]
        assert masked_text(reference, ids, mask) == "".join(f"{c}{TURN}" for c in said)


def test_a_conversation_of_one_s_own_private_characters_keeps_them(published: Path) -> None:
    content = f"{chr(0x100000)}{EOS}{chr(0x100001)}"
    chat = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": content}]
    ((ids, _),) = encode(published, [chat])
    reference = Tokenizer.from_file(str(published / "tokenizer.json"))
    assert content in reference.decode(ids, skip_special_tokens=False)
    assert files(published).eos_id not in ids


def test_control_tokens_that_swallow_blanks_do_so_beside_a_spelled_one(tmp_path: Path, published: Path) -> None:
    tokenizer = Tokenizer.from_file(str(published / "tokenizer.json"))
    data = json.loads(tokenizer.to_str())
    for token in data["added_tokens"]:
        token["lstrip"] = token["rstrip"] = token["content"] == TURN
    template = "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %} <|eot_id|> \n{% endfor %}"
    config = {"bos_token": BOS, "eos_token": EOS, "chat_template": template}
    swallowing = parse_tokenizer("swallowing", json.dumps(data), json.dumps(config))
    chats = [[{"role": "assistant", "content": c} for c in (text, "hello")] for text in (f"a {EOS} b", "a b")]
    rows = rows_of(ChatEncoder("test", swallowing), chats)
    plain = load_reference(swallowing)
    import pyarrow as pa

    for text, (ids, _) in zip((f"a {EOS} b", "a b"), rows, strict=True):
        turn = swallowing.special[TURN]
        spoken = [plain.encode(pa.array([part], pa.large_string())).flat.tolist() for part in (text, "hello")]
        assert ids == [*spoken[0], turn, *spoken[1], turn]


def test_a_conversation_in_which_the_assistant_says_nothing_gives_an_empty_row(published: Path) -> None:
    silent, spoken = [{"role": "user", "content": "hello"}], [{"role": "assistant", "content": "hello"}]
    rows = encode(published, [silent, spoken])
    assert rows[0] == ([], [])
    assert rows[1][0] and any(rows[1][1])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template"),
        ("{{ messages[0].content }}", "no {% generation %} mark"),
    ],
)
def test_a_tokenizer_that_cannot_tell_who_speaks_is_a_one_line_error(
    published: Path, template: str | None, message: str
) -> None:
    config = json.dumps({"bos_token": BOS, "eos_token": EOS, "chat_template": template})
    with pytest.raises(MarinError, match=message) as refused:
        ChatEncoder("tokenizer/x", parse_tokenizer("x", (published / "tokenizer.json").read_text(), config))
    assert "\n" not in str(refused.value)


def test_a_conversation_that_the_template_refuses_is_a_one_line_error(published: Path) -> None:
    template = "{% generation %}{{ raise_exception('roles must alternate') }}{% endgeneration %}"
    config = json.dumps({"bos_token": BOS, "eos_token": EOS, "chat_template": template})
    encoder = ChatEncoder("tokenizer/x", parse_tokenizer("x", (published / "tokenizer.json").read_text(), config))
    with pytest.raises(MarinError, match=r"does not render document abc: roles must alternate") as refused:
        encoder.rows(["abc"], [json.dumps([{"role": "user", "content": "hello"}])])
    assert "\n" not in str(refused.value)


def encode(folder: Path, chats: Sequence[list[Message]]) -> list[tuple[list[int], list[int]]]:
    return rows_of(ChatEncoder("test", files(folder)), chats)


def rows_of(encoder: ChatEncoder, chats: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    rows = encoder.rows([str(number) for number in range(len(chats))], [json.dumps(chat) for chat in chats])
    ends = np.cumsum(rows.lengths)
    bounds = list(zip(ends - rows.lengths, ends, strict=True))
    ids, masks = (rows.values[field] for field in ("input_ids", "assistant_masks"))
    return [(ids[begin:end].tolist(), masks[begin:end].tolist()) for begin, end in bounds]


def masked_text(tokenizer: Tokenizer, ids: list[int], mask: list[int]) -> str:
    marked = [id_ for id_, marks in zip(ids, mask, strict=True) if marks]
    return tokenizer.decode(marked, skip_special_tokens=False)


_FILES: dict[Path, TokenizerFiles] = {}


def files(folder: Path) -> TokenizerFiles:
    if folder not in _FILES:
        texts = [(folder / name).read_text() for name in ("tokenizer.json", "tokenizer_config.json")]
        _FILES[folder] = parse_tokenizer("test", *texts)
    return _FILES[folder]
