"""The back end of a store, chosen by the URL of its root."""

from marin_core.errors import MarinError
from marin_core.store.objects import ObjectStore


def open_objects(root: str) -> ObjectStore:
    """The back end for a root: a local path, `gs://`, or `s3://` through obstore.

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
        if scheme == "s3":
            from marin_core.store.conditional import ConditionalObjects

            return ConditionalObjects(root)
    except ImportError as error:
        raise MarinError(
            f"store {root!r} needs the package {error.name!r}; install it with `uv sync --extra gke`"
        ) from None
    raise MarinError(f"store {root!r} has the unknown scheme {scheme!r}; use a local path, gs:// or s3://")
