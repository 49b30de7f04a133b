"""What is written down when an artifact is committed: identity, content, and where it came from."""

import dataclasses
import functools
import getpass
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact: path relative to it, size in bytes, SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class InputEntry:
    """The input that was really read: its identity and the digest of its content."""

    name: str
    fingerprint: str
    content: str


@dataclass(frozen=True)
class Provenance:
    """Who made an artifact, from which code, when. Times are ISO 8601 in UTC."""

    commit: str | None
    dirty: bool | None
    command: str
    host: str
    user: str
    python: str
    dagster_run: str | None
    started: str
    ended: str
    retries: int

    @classmethod
    def of(
        cls, *, started: str, ended: str, command: str | None, dagster_run: str | None, retries: int
    ) -> "Provenance":
        """`command` is what a person typed, where that is not what this process was started with."""
        commit, dirty = code_state()
        return cls(
            commit=commit,
            dirty=dirty,
            command=command or shlex.join(sys.orig_argv),
            host=socket.gethostname(),
            user=user_name(),
            python=platform.python_version(),
            dagster_run=dagster_run,
            started=started,
            ended=ended,
            retries=retries,
        )


@dataclass(frozen=True)
class ArtifactRecord:
    """`artifact.json`. An artifact without it does not exist.

    `content` digests what the artifact says (by default its files' hashes): two builds with equal `content` are
    interchangeable for whoever reads them. `summary` holds the numbers that a person wants to see.
    """

    name: str
    fingerprint: str
    partition: str | None
    payload: Mapping[str, Any]
    inputs: Mapping[str, InputEntry]
    content: str
    files: tuple[FileEntry, ...]
    summary: Mapping[str, Any]
    provenance: Provenance

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ArtifactRecord":
        return cls(
            **{
                **data,
                "inputs": {role: InputEntry(**entry) for role, entry in data["inputs"].items()},
                "files": tuple(FileEntry(**file) for file in data["files"]),
                "provenance": Provenance(**data["provenance"]),
            }
        )


@functools.cache
def code_state() -> tuple[str | None, bool | None]:
    """(commit, dirty) of the checkout this code runs from; (None, None) outside one. An image states its commit in
    MARIN_COMMIT."""
    if commit := os.environ.get("MARIN_COMMIT"):
        return commit, False
    root = Path(__file__).parents[2]
    git = ["git", "-C", str(root)]
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True, check=True)
        folder, commit = top.stdout.split("\n")[:2]
        if Path(folder).resolve() != root:
            return None, None
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
        return commit, bool(status.stdout.strip())
    except (OSError, subprocess.CalledProcessError):
        return None, None


def user_name() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
