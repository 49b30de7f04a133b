"""Where an exported model stops writing, told from its tokenizer and its chat template."""

import re
from typing import Any

from marin_core.data.tokens.tokenizer import TokenizerFiles
from marin_core.errors import MarinError

# A word that no template has; what comes right after it is how a turn of the assistant ends.
_ANSWER = "marinassetsanswer"


def generation_config(name: str, tokenizer: TokenizerFiles, pad: int | None) -> dict[str, Any]:
    """What `generation_config.json` says: the ids of BOS and of padding, where there are such, and of every token that
    ends what the model writes, a list if there are several.

    Raises:
        MarinError: the chat template of the tokenizer, called `name`, does not render a question and an answer.
    """
    ends = stop_tokens(name, tokenizer)
    config: dict[str, Any] = {"eos_token_id": ends if len(ends) > 1 else ends[0]}
    if tokenizer.bos_id is not None:
        config["bos_token_id"] = tokenizer.bos_id
    if pad is not None:
        config["pad_token_id"] = pad
    return config


def stop_tokens(name: str, tokenizer: TokenizerFiles) -> list[int]:
    """Ascending ids: EOS, and the token with which the chat template ends an assistant's turn, where that is another.

    Raises:
        MarinError: the chat template does not render a question and an answer.
    """
    ends = {tokenizer.eos_id}
    if tokenizer.chat_template is not None:
        turn_end = _first_token(_after_answer(name, tokenizer, tokenizer.chat_template), tokenizer)
        ends |= set() if turn_end is None else {turn_end}
    return sorted(ends)


def _after_answer(name: str, tokenizer: TokenizerFiles, template: str) -> str:
    """What the template writes after the last answer of a conversation; "" if it does not write the answer itself."""
    from jinja2.exceptions import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _ANSWER}]
    try:
        rendered, _ = render_jinja_template(
            [messages], chat_template=template, bos_token=tokenizer.bos or "", eos_token=tokenizer.eos
        )
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise MarinError(
            f"the chat template of {name} does not render a question and an answer: {cause}; use a tokenizer with "
            f"another template"
        ) from None
    return rendered[0].rpartition(_ANSWER)[2] if _ANSWER in rendered[0] else ""


def _first_token(text: str, tokenizer: TokenizerFiles) -> int | None:
    """The added token that a text begins with, blanks aside; the longest, if one begins with another."""
    added = {token["content"]: token["id"] for token in tokenizer.parsed["added_tokens"]}
    if not added:
        return None
    pattern = "|".join(map(re.escape, sorted(added, key=len, reverse=True)))
    found = re.match(rf"\s*({pattern})", text)
    return None if found is None else added[found[1]]
