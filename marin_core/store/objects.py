"""The small contract that the commit protocol needs from a place. Its back ends are chosen in `backends.py`.

Bulk data does not pass through here: libraries read and write it by URL (fsspec, TensorStore, Arrow).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StoredObject:
    """The bytes of a small object and an opaque version for `replace`."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """Conditional operations on small objects; paths are relative to the root and use forward slashes."""

    def create(self, path: str, data: bytes) -> bool:
        """Write if absent, atomically. False when the object exists."""
        ...

    def replace(self, path: str, data: bytes, version: str) -> bool:
        """Compare-and-swap: write only if the object still has `version`. False otherwise."""
        ...

    def read(self, path: str) -> StoredObject | None: ...

    def delete(self, path: str) -> None:
        """Delete an object or everything below a prefix; absent is fine."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(path, size in bytes) of every object below a prefix, in order of path."""
        ...
