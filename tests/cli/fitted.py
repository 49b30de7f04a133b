"""A store in which a profile's suite is finished, as far as its token law goes."""

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import ArtifactSpec, Store


def commit_law(profile: str, law: dict[str, float]) -> str:
    """Commit the law to the profile's store, on top of inputs that are there and empty; returns its fingerprint."""
    loaded = load_profile(profile)
    spec, store = LabGraph.of(loaded).scaling_law, Store(loaded.place.store)
    for role in spec.inputs.values():
        _commit_empty(store, role)
    with store.writer(spec) as writer:
        writer.write_json("scaling_law.json", {"token_law": law})
        writer.commit({})
    return spec.fingerprint


def _commit_empty(store: Store, spec: ArtifactSpec) -> None:
    if store.record(spec.name, spec.fingerprint) is not None:
        return
    for role in spec.inputs.values():
        _commit_empty(store, role)
    with store.writer(spec) as writer:
        writer.commit({})
