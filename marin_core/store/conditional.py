"""The store's contract on what obstore serves with conditional puts: S3, and memory for tests."""

from collections.abc import Iterator

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError
from obstore.store import MemoryStore, from_url

from marin_core.store.objects import StoredObject


class ConditionalObjects:
    """Versions are e-tags."""

    def __init__(self, root: str):
        self._store = MemoryStore() if root.startswith("memory://") else from_url(root)

    def create(self, path: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return self._is_ours(path, data)
        return True

    def replace(self, path: str, data: bytes, version: str) -> bool:
        try:
            obstore.put(self._store, path, data, mode={"e_tag": version}, use_multipart=False)
        except (PreconditionError, NotFoundError):
            return self._is_ours(path, data)
        return True

    def _is_ours(self, path: str, data: bytes) -> bool:
        """The client retries a put whose answer was lost, and is then refused by its own success."""
        current = self.read(path)
        return current is not None and current.data == data

    def read(self, path: str) -> StoredObject | None:
        try:
            result = obstore.get(self._store, path)
        except (FileNotFoundError, NotFoundError):
            return None
        return StoredObject(bytes(result.bytes()), result.meta["e_tag"] or "")

    def delete(self, path: str) -> None:
        for name in [path, *(name for name, _ in self.list(f"{path}/"))]:
            try:
                obstore.delete(self._store, name)
            except (FileNotFoundError, NotFoundError):
                continue

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        found = [meta for chunk in obstore.list(self._store, prefix=prefix.rstrip("/")) for meta in chunk]
        for meta in sorted(found, key=lambda m: m["path"]):
            yield meta["path"], meta["size"]
