"""Conversations to token ids and loss masks, by a tokenizer's chat template.

The template's own special tokens become control tokens. The same words spelled in a message are text and get ordinary
ids: they are out of sight while the template is rendered and split.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from marin_core.data.tokens.encoder import Rows, reference_tokenizer
from marin_core.data.tokens.tokenizer import TokenizerFiles
from marin_core.errors import MarinError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# Private-use characters stand for spelled special tokens; a conversation that has some of its own is given others.
_SENTINELS = range(0x100000, 0x10FFFE)
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


@dataclass(frozen=True)
class Conversation:
    """A rendered conversation: its text, and where in it, in characters, the assistant's words are.

    `spelled` maps each sentinel in the text to the special token that a message spells there.
    """

    text: str
    generated: Sequence[tuple[int, int]]
    spelled: dict[str, str]


class ChatEncoder:
    """The chat template of a tokenizer.

    Raises:
        MarinError: there is none, or it does not mark what the assistant says.
    """

    def __init__(self, name: str, tokenizer: TokenizerFiles):
        template = tokenizer.chat_template
        if template is None or not _GENERATION.search(template):
            lacks = "no chat template" if template is None else "no {% generation %} mark in its chat template"
            raise MarinError(
                f"{name} has {lacks}, so it cannot tell which tokens of a conversation count; use a tokenizer whose "
                f"chat template wraps the assistant's words in {{% generation %}} … {{% endgeneration %}}"
            )
        self._name, self._tokenizer, self._template = name, tokenizer, template
        self._special = tokenizer.special
        self._spelling = re.compile("|".join(map(re.escape, sorted(self._special, key=len, reverse=True))))

    def rows(self, ids: Sequence[str], conversations: Sequence[str]) -> Rows:
        """Rows `input_ids` and `assistant_masks` of conversations (JSON lists of {role, content}), one per document id.

        A conversation without a word of the assistant's gets an empty row.

        Raises:
            MarinError: the template does not render a conversation.
        """
        encoded = [self._encode(self._render(*each)) for each in zip(ids, conversations, strict=True)]
        empty = np.empty(0, np.int32)
        fields = {
            "input_ids": np.concatenate([empty, *(row for row, _ in encoded)]),
            "assistant_masks": np.concatenate([empty, *(mask for _, mask in encoded)]),
        }
        return Rows(np.array([len(row) for row, _ in encoded], np.int64), fields)

    def _render(self, id_: str, conversation: str) -> Conversation:
        from jinja2.exceptions import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            messages, spelled = self._hide(json.loads(conversation))
            texts, generated = render_jinja_template(
                [messages],
                chat_template=self._template,
                return_assistant_tokens_mask=True,
                bos_token=self._tokenizer.bos or "",
                eos_token=self._tokenizer.eos,
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            cause = (str(error).splitlines() or [type(error).__name__])[0]
            raise MarinError(
                f"the chat template of {self._name} does not render document {id_}: {cause}; correct the document's "
                f"messages or use a tokenizer with another template"
            ) from None
        return Conversation(texts[0], cast("list[tuple[int, int]]", generated[0]), spelled)

    def _hide(self, messages: Any) -> tuple[Any, dict[str, str]]:
        """The messages with sentinels for spelled special tokens, and what each stands for."""
        whole = json.dumps(messages, ensure_ascii=False)
        if not any(self._spelling.search(text) for text in _strings(messages)):
            return messages, {}
        unused = (chr(code) for code in _SENTINELS if chr(code) not in whole)
        sentinels = dict(zip(self._special, unused, strict=False))
        hidden = _mapped(messages, lambda text: self._spelling.sub(lambda found: sentinels[found[0]], text))
        return hidden, {sentinel: token for token, sentinel in sentinels.items()}

    def _encode(self, conversation: Conversation) -> tuple[np.ndarray, np.ndarray]:
        """Ids and mask; both empty if the assistant says nothing."""
        ids: list[int] = []
        mask: list[int] = []
        start = 0
        for piece in self._pieces(conversation):
            encoding, before = self._encode_piece(piece, conversation.spelled)
            stop = start + len(piece)
            # A span that goes on after the piece has all of its end, the bytes of the last character too.
            spans = [
                (before(max(begin, start) - start), before(end - start) if end <= stop else None)
                for begin, end in conversation.generated
                if max(begin, start) < min(end, stop)
            ]
            ids += encoding.ids
            mask += _mask(encoding, spans)
            start = stop
        kept = slice(None) if any(mask) else slice(0)
        return np.array(ids[kept], np.int32), np.array(mask[kept], np.int32)

    def _pieces(self, conversation: Conversation) -> Sequence[str]:
        """The text itself, or if something is spelled in it, its control tokens and what is between them."""
        if not conversation.spelled:
            return [conversation.text]
        return [piece for piece in self._control.split(conversation.text) if piece]

    def _encode_piece(self, piece: str, spelled: Mapping[str, str]) -> tuple["Encoding", Callable[[int], int]]:
        """A piece's encoding, and for a position in the piece the one in the text that was encoded."""
        if not spelled or self._control.fullmatch(piece):
            return self._marked.encode(piece, add_special_tokens=False), lambda position: position

        def restored(text: str) -> str:
            return "".join(spelled.get(character, character) for character in text)

        encoding = self._plain.encode(restored(piece), add_special_tokens=False)
        return encoding, lambda position: len(restored(piece[:position]))

    @cached_property
    def _marked(self) -> "Tokenizer":
        """Special tokens in text are control tokens: for what the template made."""
        return reference_tokenizer(self._tokenizer, special=True)

    @cached_property
    def _plain(self) -> "Tokenizer":
        return reference_tokenizer(self._tokenizer, special=False)

    @cached_property
    def _control(self) -> re.Pattern[str]:
        """Control tokens, with the blanks that some of them swallow."""
        flags = {token["content"]: token for token in self._tokenizer.parsed["added_tokens"] if token["special"]}
        patterns = [
            (r"\s*" if flags[token]["lstrip"] else "") + re.escape(token) + (r"\s*" if flags[token]["rstrip"] else "")
            for token in sorted(flags, key=len, reverse=True)
        ]
        return re.compile(f"({'|'.join(patterns)})")


def _mask(encoding: "Encoding", spans: Sequence[tuple[int, int | None]]) -> list[int]:
    """1 for each token from that of a span's first character to that of its last, or to the end."""
    mask = [0] * len(encoding.ids)
    for start, end in spans:
        first = encoding.char_to_token(start)
        last = None if end is None else encoding.char_to_token(end - 1)
        if first is not None:
            stop = len(mask) if last is None else last + 1
            mask[first:stop] = [1] * (stop - first)
    return mask


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text in it changed, keys left as they are."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if isinstance(value, dict):
        return {key: _mapped(each, change) for key, each in value.items()}
    return value
