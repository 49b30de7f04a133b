"""Lists the files of a `FolderOrigin` with their content's digests. Nothing is copied here."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from marin_core.data.sources.declaration import FolderOrigin
from marin_core.data.sources.listing import ListedFile, matching
from marin_core.errors import MarinError


def list_folder(origin: FolderOrigin) -> list[ListedFile]:
    """The files that match, in the order of their paths, each with its size and SHA-256.

    Raises:
        MarinError: there is no such folder, no file in it matches, or one cannot be read.
    """
    root = Path(origin.path).expanduser()
    if not root.is_dir():
        raise MarinError(f"source folder {origin.path} is not there; correct the path of the source's entry")
    inside = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    chosen = matching(inside, origin.files)
    if not chosen:
        raise MarinError(
            f"source folder {origin.path} has {len(inside)} files and none matches {', '.join(origin.files)}; "
            f"correct the globs of the source's entry"
        )
    return [_listed(root, path) for path in chosen]


def folder_digest(files: Sequence[ListedFile]) -> str:
    """16 hex digits of paths and contents."""
    lines = "".join(f"{file.sha256} {file.path}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _listed(root: Path, path: str) -> ListedFile:
    file = root / path
    try:
        status = file.stat()
        sha256 = _sha256(str(file.resolve()), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise MarinError(f"source file {file} cannot be read: {error.strerror}") from None
    return ListedFile(path, f"file://{file.absolute()}", status.st_size, sha256)


@lru_cache(maxsize=100_000)
def _sha256(path: str, size: int, modified_ns: int) -> str:
    """A file's digest, read once in a process unless the file changes: the identity of a source is asked for often."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
