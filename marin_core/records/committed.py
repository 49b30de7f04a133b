"""A record as an artifact: a few small files that say one thing, committed once and never written again."""

from collections.abc import Mapping
from typing import Any

from marin_core.store import ArtifactRecord, ArtifactSpec, Store


def record_spec(name: str, config: Mapping[str, Any]) -> ArtifactSpec:
    """The artifact of a record; `config` says which one it is, so that to record a thing twice changes nothing."""
    return ArtifactSpec(name, "record", "1", dict(config))


def commit_record(
    store: Store,
    name: str,
    config: Mapping[str, Any],
    files: Mapping[str, bytes],
    summary: Mapping[str, Any],
    command: str | None = None,
) -> ArtifactRecord:
    """Commit a record, or return it if it is committed already. `command` is what a person typed."""
    spec = record_spec(name, config)
    if record := store.record(spec.name, spec.fingerprint):
        return record
    with store.writer(spec) as writer:
        if writer.committed:
            return writer.committed
        for path, data in files.items():
            with writer.open(path) as file:
                file.write(data)
        return writer.commit(summary, command=command)
