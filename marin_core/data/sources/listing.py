"""What a source's files are, known before any is fetched: the list that all ranks of a download share."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marin_core.errors import MarinError


@dataclass(frozen=True)
class ListedFile:
    """One file of a source. `path` is its place below `files/` of the raw artifact, `origin` where it is fetched from.

    `size` in bytes and the digests are what the source itself says of the file, None where it says nothing: `sha256`,
    and `git_sha1`, git's own of a blob.
    """

    path: str
    origin: str
    size: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None


@dataclass(frozen=True)
class Listing:
    """Files in the order of their paths, and the revision they are of, where the origin has revisions."""

    files: tuple[ListedFile, ...]
    revision: str | None = None

    @classmethod
    def of(cls, source: str, files: Iterable[ListedFile], revision: str | None = None) -> "Listing":
        """Raises MarinError if a path leads out of the artifact or two files have the same."""
        ordered = sorted(files, key=lambda file: file.path)
        for file in ordered:
            if any(part in ("", ".", "..") for part in file.path.split("/")):
                raise MarinError(f"source {source!r}: {file.origin} has the path {file.path!r}, which leads astray")
        for before, file in itertools.pairwise(ordered):
            if before.path == file.path:
                raise MarinError(
                    f"source {source!r}: {before.origin} and {file.origin} would both be {file.path!r}; "
                    f"declare them as two sources"
                )
        return cls(tuple(ordered), revision)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Listing":
        return cls(tuple(ListedFile(**file) for file in data["files"]), data["revision"])

    @cached_property
    def total_bytes(self) -> int | None:
        """None where the size of a file is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def matching(paths: Iterable[str], globs: Sequence[str]) -> list[str]:
    """The paths that match one of the globs. `*` stops at `/`, `**` does not."""
    from fsspec.utils import glob_translate

    patterns = [re.compile(glob_translate(glob)) for glob in globs]
    return [path for path in paths if any(pattern.match(path) for pattern in patterns)]
