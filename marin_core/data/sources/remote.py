"""The other end of a download: a file read from any byte on. Web servers are in `web.py`, stores in `fetch.py`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from marin_core.data.sources.patience import Interrupted


class Unresumable(Interrupted):
    """The other end cannot go on from the bytes that are there, or those are not the file's."""


@dataclass(frozen=True)
class Version:
    """What the other end says of a whole file, None where it does not: its size, `tag`, which changes when the content
    does, and the MD5 in hex."""

    size: int | None = None
    tag: str | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Body:
    """Bytes of a file from the offset `start` on: the one asked for, or 0 where the other end does not resume."""

    start: int
    version: Version
    chunks: Iterator[bytes]


class Remote(Protocol):
    def open(self, start: int, tag: str | None) -> AbstractContextManager[Body]:
        """The file's bytes from `start` on, or from 0 if its tag is no longer `tag`.

        Raises:
            Interrupted: it may be there by the next try.
            MarinError: it will not.
        """
        ...
