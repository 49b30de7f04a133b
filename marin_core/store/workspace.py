"""Where an artifact's files are written while it is built: its own folder, and in it one for what is only on the way.

Names that begin with a dot at the top of the folder are never files of the artifact.
"""

import json
from collections.abc import Callable, Iterable
from typing import IO, Any, cast

import fsspec

from marin_core.store.filesystem import read_files

WORK = ".work"
# Object stores take a large file in requests of this size; it is held in memory until it is sent.
_WRITE_BYTES = 16 << 20


class Workspace:
    """The folder of an artifact under construction, and in it a folder of intermediate files.

    Held by the writer that will commit, or by one of several ranks that work for it. `check` raises LeaseLost once
    another writer took over; every `open` checks first.
    """

    def __init__(self, url: str, fs: fsspec.AbstractFileSystem, check: Callable[[], None]):
        self.url, self.fs, self.check = url, fs, check

    def path(self, *parts: str) -> str:
        """URL of a file of the artifact, for libraries that write by URL."""
        return "/".join([self.url, *parts])

    def work_path(self, *parts: str) -> str:
        """URL of an intermediate file. It outlives a kill, so that work is resumed, and is gone after the commit."""
        return "/".join([self.url, WORK, *parts])

    def open(self, path: str, mode: str = "wb") -> IO[Any]:
        """Open a file of the artifact for writing, folders made as needed."""
        return self._open(self.path(path), mode)

    def open_work(self, path: str, mode: str = "wb") -> IO[Any]:
        """Open an intermediate file, folders made as needed when writing."""
        return self._open(self.work_path(path), mode)

    def list_work(self, folder: str) -> set[str]:
        """Paths, as `open_work` takes them, of the intermediate files right in a folder."""
        try:
            names = self.fs.ls(self.work_path(folder), detail=False)
        except FileNotFoundError:
            return set()
        return {f"{folder}/{str(name).rsplit('/', 1)[-1]}" for name in names}

    def read_work(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of those intermediate files that are there, read together."""
        urls = {self.work_path(path): path for path in paths}
        return {urls[url]: data for url, data in read_files(self.fs, urls).items()}

    def write_json(self, path: str, value: Any) -> None:
        with self.open(path) as file:
            file.write(json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")

    def _open(self, url: str, mode: str) -> IO[Any]:
        self.check()
        if "r" in mode:
            return cast("IO[Any]", self.fs.open(url, mode))
        self.fs.makedirs(url.rsplit("/", 1)[0], exist_ok=True)
        return cast("IO[Any]", self.fs.open(url, mode, block_size=_WRITE_BYTES))
