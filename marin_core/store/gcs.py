"""The store's contract on Google Cloud Storage, by object generations."""

import os
from collections.abc import Iterator

from google.api_core.exceptions import NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from marin_core.store.objects import StoredObject


class GcsObjects:
    """`gs://bucket/prefix`. STORAGE_EMULATOR_HOST selects an emulator, as for every Google client."""

    def __init__(self, root: str):
        bucket, _, prefix = root.removeprefix("gs://").partition("/")
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            client = storage.Client(project="emulator", credentials=AnonymousCredentials())
        else:
            client = storage.Client()
        self._bucket = client.bucket(bucket)
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, path: str, data: bytes) -> bool:
        return self._upload(path, data, generation=0)

    def replace(self, path: str, data: bytes, version: str) -> bool:
        return self._upload(path, data, generation=int(version))

    def read(self, path: str) -> StoredObject | None:
        blob = self._bucket.blob(self._prefix + path)
        try:
            data = blob.download_as_bytes()
        except NotFound:
            return None
        # The download sets the generation that it read.
        return StoredObject(data, str(blob.generation))

    def delete(self, path: str) -> None:
        for name in [path, *(name for name, _ in self.list(f"{path}/"))]:
            try:
                self._bucket.blob(self._prefix + name).delete()
            except NotFound:
                continue

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        for blob in self._bucket.list_blobs(prefix=self._prefix + prefix):
            yield blob.name.removeprefix(self._prefix), blob.size or 0

    def _upload(self, path: str, data: bytes, *, generation: int) -> bool:
        try:
            self._bucket.blob(self._prefix + path).upload_from_string(data, if_generation_match=generation)
        except PreconditionFailed:
            # The client retries an upload whose answer was lost, and is then refused by its own success.
            current = self.read(path)
            return current is not None and current.data == data
        return True
