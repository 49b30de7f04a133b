"""Finding what artifacts are made of, committed or only planned, in few requests."""

from marin_core.records.difference import Find, Identified
from marin_core.records.lineage import Key, trace
from marin_core.store import ArtifactRecord, ArtifactSpec, Store


def finder(store: Store, *ends: Identified | None) -> Find:
    """Finds everything that the ends are made of: what is committed in the store, else in their specs."""
    planned: dict[Key, ArtifactSpec] = {}

    def add(spec: ArtifactSpec) -> None:
        if (spec.name, spec.fingerprint) not in planned:
            planned[spec.name, spec.fingerprint] = spec
            for upstream in spec.inputs.values():
                add(upstream)

    committed: dict[Key, ArtifactRecord] = {}
    for end in ends:
        if isinstance(end, ArtifactSpec):
            add(end)
        elif isinstance(end, ArtifactRecord) and (end.name, end.fingerprint) not in committed:
            committed |= trace(store, end).records
    missing = store.find_records(planned.keys() - committed.keys())
    committed |= {key: record for key, record in missing.items() if record is not None}

    def find(name: str, fingerprint: str) -> Identified | None:
        return committed.get((name, fingerprint)) or planned.get((name, fingerprint))

    return find
