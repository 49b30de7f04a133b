"""The store: named, fingerprinted directories in an object store, each committed by writing its record last."""

from marin_core.store.backends import open_objects
from marin_core.store.lease import Lease, LeaseLost
from marin_core.store.objects import ObjectStore
from marin_core.store.record import ArtifactRecord, FileEntry, InputEntry, Provenance
from marin_core.store.spec import ArtifactSpec, FieldChange, canonical_json, digest, payload_changes
from marin_core.store.store import Artifact, Store, StoreError, Writer
from marin_core.store.workspace import Workspace

__all__ = [
    "Artifact",
    "ArtifactRecord",
    "ArtifactSpec",
    "FieldChange",
    "FileEntry",
    "InputEntry",
    "Lease",
    "LeaseLost",
    "ObjectStore",
    "Provenance",
    "Store",
    "StoreError",
    "Workspace",
    "Writer",
    "canonical_json",
    "digest",
    "open_objects",
    "payload_changes",
]
