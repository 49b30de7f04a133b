"""The store's contract on Google Cloud Storage, by object generations."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from google.api_core.exceptions import Forbidden, NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import storage

from marin_core.errors import MarinError
from marin_core.store.objects import StoredObject

# Objects in an answer to a listing, the most that the service gives.
_PAGE = 1000
# Below the ten connections that the client keeps open.
_PARALLEL_DELETES = 8


class GcsObjects:
    """`gs://bucket/prefix`. STORAGE_EMULATOR_HOST selects an emulator, as for every Google client."""

    def __init__(self, root: str):
        self._name, _, prefix = root.removeprefix("gs://").partition("/")
        self._bucket = _client().bucket(self._name)
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, path: str, data: bytes) -> bool:
        return self._upload(path, data, generation=0)

    def replace(self, path: str, data: bytes, version: str) -> bool:
        # No version of an object is 0, which would ask for its absence.
        return version.isdecimal() and int(version) > 0 and self._upload(path, data, generation=int(version))

    def read(self, path: str) -> StoredObject | None:
        blob = self._bucket.blob(self._prefix + path)
        try:
            data = blob.download_as_bytes()
        except NotFound:
            return None
        # The download sets the generation that it read.
        return StoredObject(data, str(blob.generation))

    def delete(self, path: str) -> None:
        self._delete_object(path)
        with ThreadPoolExecutor(_PARALLEL_DELETES) as pool:
            for _ in pool.map(self._delete_object, [name for name, _ in self.list(f"{path}/")]):
                pass

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        fields = "items(name,size),nextPageToken"
        for blob in self._bucket.list_blobs(prefix=self._prefix + prefix, fields=fields, page_size=_PAGE):
            yield blob.name.removeprefix(self._prefix), blob.size or 0

    def _delete_object(self, path: str) -> None:
        with contextlib.suppress(NotFound):
            self._bucket.blob(self._prefix + path).delete()

    def _upload(self, path: str, data: bytes, *, generation: int) -> bool:
        try:
            self._bucket.blob(self._prefix + path).upload_from_string(data, if_generation_match=generation)
        except PreconditionFailed:
            # The client retries an upload whose answer was lost, and is then refused by its own success.
            current = self.read(path)
            return current is not None and current.data == data
        except NotFound:
            raise _no_bucket(self._name) from None
        return True


def bucket_location(root: str) -> str | None:
    """Where the bucket of a root lies, in lower case, as `regions.same_region` takes it; None if it is no `gs://` root.

    Raises:
        MarinError: there is no such bucket, or it may not be asked for its location.
    """
    if not root.startswith("gs://"):
        return None
    name = root.removeprefix("gs://").partition("/")[0]
    try:
        bucket = _client().get_bucket(name)
    except NotFound:
        raise _no_bucket(name) from None
    except (Forbidden, GoogleAuthError) as error:
        cause = str(error).splitlines()[0]
        raise MarinError(
            f"the location of bucket {name!r} cannot be read: {cause}; grant storage.buckets.get on it"
        ) from None
    return "+".join(bucket.data_locations or [bucket.location]).lower()


def _no_bucket(name: str) -> MarinError:
    return MarinError(f"there is no bucket {name!r}; create it, or set MARIN_STORE to another")


def _client() -> storage.Client:
    # For its traces the client asks after the bucket on every answer of 404, which here means only "not built yet".
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client(project="emulator", credentials=AnonymousCredentials())
    return storage.Client()
