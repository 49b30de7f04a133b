"""From an artifact down to what it is made of: the inputs that were really read, as the committed records say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin_core.store import ArtifactRecord, InputEntry, Store

# Name and fingerprint.
Key = tuple[str, str]


@dataclass(frozen=True)
class Lineage:
    """An artifact and everything that it is made of, as far as it was followed.

    `records` has, by name and fingerprint, every artifact that is still in the store; those of `cut` are in it, but
    not what they were made of.
    """

    root: ArtifactRecord
    records: Mapping[Key, ArtifactRecord]
    cut: frozenset[Key]

    def inputs(self, record: ArtifactRecord) -> Mapping[str, InputEntry]:
        """What a record read, by role; nothing where following stopped."""
        return {} if key_of(record) in self.cut else record.inputs

    def found(self, entry: InputEntry) -> ArtifactRecord | None:
        """The artifact that was read, None if it is gone."""
        return self.records.get((entry.name, entry.fingerprint))

    def changed(self, entry: InputEntry) -> bool:
        """Whether it was built again since, with other content than was read."""
        record = self.found(entry)
        return record is not None and record.content != entry.content

    def leaves(self) -> list[ArtifactRecord]:
        """The artifacts that are made of nothing: raw sources, and what only settings decide."""
        return [record for record in self.walk() if not record.inputs]

    def walk(self) -> Iterator[ArtifactRecord]:
        """Every artifact once, inputs before what is made of them."""
        seen: set[Key] = set()

        def visit(record: ArtifactRecord) -> Iterator[ArtifactRecord]:
            seen.add(key_of(record))
            for entry in self.inputs(record).values():
                upstream = self.found(entry)
                if upstream is not None and key_of(upstream) not in seen:
                    yield from visit(upstream)
            yield record

        return visit(self.root)

    def to_json(self) -> dict[str, Any]:
        """Flat: `artifacts` in the order of `walk`, inputs by name and fingerprint."""
        return {"root": _identity(self.root), "artifacts": [self._artifact(record) for record in self.walk()]}

    def _artifact(self, record: ArtifactRecord) -> dict[str, Any]:
        made = record.provenance
        return {
            **_identity(record),
            "commit": made.commit,
            "dirty": made.dirty,
            "built": made.ended,
            "origin": origin(record),
            "summary": dict(record.summary),
            "followed": key_of(record) not in self.cut,
            "inputs": [self._input(role, entry) for role, entry in self.inputs(record).items()],
        }

    def _input(self, role: str, entry: InputEntry) -> dict[str, Any]:
        found = self.found(entry)
        return {
            "role": role,
            "name": entry.name,
            "partition": found.partition if found else None,
            "fingerprint": entry.fingerprint,
            "changed": self.changed(entry),
            "gone": found is None,
        }


def trace(store: Store, root: ArtifactRecord, depth: int | None = None) -> Lineage:
    """Follow the inputs of a record, at most `depth` steps. Each record is read once, those of a step together."""
    records: dict[Key, ArtifactRecord] = {key_of(root): root}
    last, steps = [root], 0
    while last and (depth is None or steps < depth):
        wanted = {(entry.name, entry.fingerprint) for record in last for entry in record.inputs.values()}
        found = {key: record for key, record in store.find_records(wanted - records.keys()).items() if record}
        records |= found
        last, steps = list(found.values()), steps + 1
    return Lineage(root, records, frozenset(key_of(record) for record in last if record.inputs))


def key_of(record: ArtifactRecord) -> Key:
    return record.name, record.fingerprint


def origin(record: ArtifactRecord) -> Any:
    """Where what is made of nothing came from: the declared origin of a raw source, else all its settings; None for
    what is made of something."""
    if record.inputs:
        return None
    config = record.payload["config"]
    return config.get("origin", config)


def _identity(record: ArtifactRecord) -> dict[str, str | None]:
    return {"name": record.name, "partition": record.partition, "fingerprint": record.fingerprint}
