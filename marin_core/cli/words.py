"""What people type: a choice of words with spaces, dashes or underscores between them, and lines of text."""

from collections.abc import Sequence
from typing import Any

import click


class Words(click.Choice[str]):
    """Like `click.Choice`: `out-of-memory` and `out_of_memory` are `out of memory`."""

    def __init__(self, choices: Sequence[str]):
        super().__init__(choices, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(plain(str(value)), param, ctx)


def one_line(text: str) -> str:
    """What a person wrote as a line: without line breaks, and without what would steer a terminal that shows it."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def plain(words: str) -> str:
    """Lower-case words with spaces between them."""
    return " ".join(words.lower().replace("_", " ").replace("-", " ").split())
