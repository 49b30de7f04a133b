"""The small contract that the commit protocol needs from a place, and the choice of a back end by URL.

Bulk data does not pass through here: libraries read and write it by URL (fsspec, TensorStore, Arrow).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from marin_core.errors import MarinError


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


def open_objects(root: str) -> ObjectStore:
    """The back end for a root: a local path, `gs://`, or what obstore serves with conditional puts (`s3://`, `az://`).

    Raises:
        MarinError: unknown scheme, or the extra that serves it is not installed.
    """
    scheme, separator, _ = root.partition("://")
    if not separator:
        from marin_core.store.local import LocalObjects

        return LocalObjects(root)
    try:
        if scheme == "gs":
            from marin_core.store.gcs import GcsObjects

            return GcsObjects(root)
        if scheme in ("s3", "az"):
            from marin_core.store.conditional import ConditionalObjects

            return ConditionalObjects(root)
    except ImportError as error:
        raise MarinError(
            f"store {root!r} needs the package {error.name!r}; install it with `uv sync --extra gke`"
        ) from None
    raise MarinError(f"store {root!r} has the unknown scheme {scheme!r}; use a local path, gs://, s3:// or az://")
