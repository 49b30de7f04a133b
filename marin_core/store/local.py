"""The store's contract on a local (POSIX) file system."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import xxhash

from marin_core.store.objects import StoredObject


class LocalObjects:
    """Creates by hard link (atomic, whole or not at all) and replaces by rename under a lock file."""

    def __init__(self, root: str):
        self._root = Path(root)

    def create(self, path: str, data: bytes) -> bool:
        with self._written(path, data) as (temporary, target):
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            _sync_folder(target.parent)
            return True

    def replace(self, path: str, data: bytes, version: str) -> bool:
        with self._locked(path), self._written(path, data) as (temporary, target):
            current = self.read(path)
            if current is None or current.version != version:
                return False
            temporary.replace(target)
            return True

    def read(self, path: str) -> StoredObject | None:
        try:
            data = (self._root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredObject(data, xxhash.xxh3_128_hexdigest(data))

    def delete(self, path: str) -> None:
        target = self._root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        found = [Path(folder, file) for folder, _, files in os.walk(self._root / prefix) for file in files]
        for path, full in sorted((full.relative_to(self._root).as_posix(), full) for full in found):
            with contextlib.suppress(FileNotFoundError):
                yield path, full.stat().st_size

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        """The data in a temporary file beside its target, flushed to disk; removed afterwards."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".write-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary, target
        finally:
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        lock = self._root / ".locks" / xxhash.xxh3_64_hexdigest(path.encode())
        lock.parent.mkdir(parents=True, exist_ok=True)
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
