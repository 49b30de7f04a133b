"""The command that a process goes back to, as a person would read it."""

import multiprocessing
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def typed_command() -> str:
    """What a person typed to start this process; where Dagster started it, which part of Dagster did."""
    command = sys.orig_argv if multiprocessing.parent_process() is None else _command_of_starter() or sys.orig_argv
    return readable(command)


def readable(command: Sequence[str]) -> str:
    """A command without its interpreter and without the arguments that no person wrote."""
    words = command[2:] if command[1:2] == ["-m"] else command[1:]
    words = [*(Path(name).name for name in words[:1]), *words[1:]]
    # Dagster starts its own servers and run workers with kilobytes of arguments.
    own = words[:2] == ["dagster", "api"]
    return " ".join([shlex.join(words[:3]), *(["…"] if words[3:] else [])]) if own else shlex.join(words)


def _command_of_starter() -> list[str] | None:
    """The command of the nearest process before this one that is not Python's own way to start another; None where
    that cannot be read."""
    try:
        pid = multiprocessing.parent_process().pid  # type: ignore[union-attr]
        while words := Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0"):
            if not any("multiprocessing" in word for word in words):
                return words
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return None
