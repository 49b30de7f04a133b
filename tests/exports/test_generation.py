"""Where an exported model stops, for chat templates as they are published."""

import json

import pytest

from marin_core.data.tokens.tokenizer import TokenizerFiles, parse_tokenizer
from marin_core.errors import MarinError
from marin_core.exports.generation import generation_config

TOKENS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_end|>\n", "<|eot_id|>"]
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{{ '\n' }}{% endfor %}"
# The end of a turn is EOS itself; between turns there is more.
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
    "{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
BLANK_BEFORE_THE_END = "{% for m in messages %}{{ m.content }}\n <|eot_id|>{% endfor %}"
NO_END = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
NO_ANSWERS = "{% for m in messages if m.role == 'user' %}{{ m.content }}<|im_end|>{% endfor %}"
OWN_FAULT = "{{ raise_exception('only one message') }}"


def tokenizer(template: str | None, bos: str | None = "<s>") -> TokenizerFiles:
    added = [{"id": number, "content": token, "special": number < 4} for number, token in enumerate(TOKENS)]
    model = {"type": "BPE", "vocab": {token: number for number, token in enumerate(TOKENS)}, "merges": []}
    config = {"bos_token": bos, "eos_token": "</s>", "chat_template": template}
    return parse_tokenizer("test", json.dumps({"added_tokens": added, "model": model}), json.dumps(config))


@pytest.mark.parametrize(
    ("template", "stops"),
    [
        (None, 1),
        # The longer of two tokens that begin alike is what the tokenizer finds there.
        (CHATML, [1, 4]),
        (CHATML.replace("{{ '\n' }}", "."), [1, 3]),
        (MISTRAL, 1),
        (BLANK_BEFORE_THE_END, [1, 5]),
        (NO_END, 1),
        (NO_ANSWERS, 1),
    ],
)
def test_stops_are_eos_and_the_end_of_an_assistant_s_turn(template: str | None, stops: int | list[int]) -> None:
    expected = {"eos_token_id": stops, "bos_token_id": 0}
    assert generation_config("test", tokenizer(template), pad=None) == expected


def test_what_the_tokenizer_has_not_is_not_named() -> None:
    assert generation_config("test", tokenizer(None, bos=None), pad=None) == {"eos_token_id": 1}
    assert generation_config("test", tokenizer(None, bos=None), pad=3) == {"eos_token_id": 1, "pad_token_id": 3}


def test_a_template_that_renders_no_answer_is_an_error() -> None:
    with pytest.raises(MarinError, match="of tokenizer/x does not render a question and an answer: only one message"):
        generation_config("tokenizer/x", tokenizer(OWN_FAULT), pad=None)
