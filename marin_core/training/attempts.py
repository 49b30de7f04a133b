"""How the attempts to train a run ended, kept in its artifact through every kill: `attempts.jsonl`.

One line when an attempt begins to train and one when it ends with a word. It tells a model card what a run went
through; no result depends on it.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from marin_core.errors import in_one_line
from marin_core.store import LeaseLost, Writer
from marin_core.store.filesystem import read_files
from marin_core.store.store import utc_now
from marin_core.termination import Terminated

_FILE = "attempts.jsonl"
# By SIGTERM with a checkpoint; because another process of the gang had gone; by any other error; without a word.
ENDINGS = ("preempted", "peer_lost", "failed", "died")


@contextlib.contextmanager
def attempt(
    writer: Writer, *, after_step: int, hardware: Mapping[str, Any], is_loss: Callable[[BaseException], bool]
) -> Iterator[dict[str, int]]:
    """One attempt, begun after `after_step` (-1: at the beginning); yields how many earlier ones ended in each of
    `ENDINGS`.

    `is_loss` says of an error whether it came of another process that has gone.
    """
    log = _Log(writer)
    number, earlier = log.earlier()
    log.write(
        {"attempt": number, "began": utc_now(), "host": socket.gethostname(), "after_step": after_step, **hardware}
    )
    try:
        yield earlier
    except (LeaseLost, GeneratorExit):
        raise  # what is written now is another's; nobody waits for an end any more
    except BaseException as error:
        how = "preempted" if isinstance(error, Terminated) else "peer_lost" if is_loss(error) else "failed"
        said = {} if isinstance(error, Terminated) else {"error": _said(error)}
        # Whatever the store's back end raises: it would take the place of the error, and of what the exit code says.
        with contextlib.suppress(Exception):
            log.write({"attempt": number, "ended": utc_now(), "how": how, **said})
        raise


class _Log:
    """The file. Where nothing can be appended to, it is written anew for each line; there are few."""

    def __init__(self, writer: Writer):
        self._writer = writer
        self._appends = isinstance(writer.fs, LocalFileSystem)
        url = writer.path(_FILE)
        self._data = read_files(writer.fs, [url]).get(url, b"")
        if self._data and not self._data.endswith(b"\n"):
            self._add(b"\n")  # a kill cut the last line short

    def earlier(self) -> tuple[int, dict[str, int]]:
        """The number of the next attempt, from 1, and how many ended in which way."""
        endings: dict[int, str] = {}
        for line in self._data.splitlines():
            with contextlib.suppress(ValueError, KeyError):
                said = json.loads(line)
                endings[said["attempt"]] = said.get("how", "died")
        counts = {how: list(endings.values()).count(how) for how in ENDINGS}
        return max(endings, default=0) + 1, counts

    def write(self, line: Mapping[str, Any]) -> None:
        self._add(json.dumps(line).encode() + b"\n")

    def _add(self, data: bytes) -> None:
        self._data += data
        with self._writer.open(_FILE, "ab" if self._appends else "wb") as file:
            file.write(data if self._appends else self._data)


def _said(error: BaseException) -> str:
    return in_one_line(error)[:300] if isinstance(error, Exception) else type(error).__name__
