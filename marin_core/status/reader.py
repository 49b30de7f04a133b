"""What is committed, what is missing, and why something would be built again: the plan before anything runs."""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_core.graph import LabGraph
from marin_core.store import ArtifactRecord, ArtifactSpec, FieldChange, Store, payload_changes


class State(enum.Enum):
    COMMITTED = "committed"
    MISSING = "missing"
    STALE = "stale"


@dataclass(frozen=True)
class ArtifactStatus:
    """One artifact of the graph. `changes` and `rebuilt` are empty unless an earlier build no longer fits.

    `changes` compares with the most similar earlier build, field by field; `rebuilt` names inputs that now have other
    content than when the committed build read them; `retried` is an evaluation that failed for want of something.
    """

    spec: ArtifactSpec
    state: State
    changes: tuple[FieldChange, ...] = ()
    rebuilt: tuple[str, ...] = ()
    retried: bool = False
    inputs: tuple["ArtifactStatus", ...] = field(default=())

    def reasons(self) -> list[str]:
        """Why it would be built again, in lines: own fields one by one, then the inputs that are others now."""
        own = [str(change) for change in self.changes if not change.field.startswith("inputs.")]
        changed = _changed_roles(self.changes)
        cells = [role for role in changed if any(is_partition(i) and i.spec.partition == role for i in self.inputs)]
        names = [role for role in changed if role not in cells] + ([f"{len(cells)} runs"] if cells else [])
        inputs = [f"its inputs are others: {', '.join(names)}"] if names else []
        rebuilt = [f"its input {role} was rebuilt with other content" for role in self.rebuilt]
        retried = ["it failed for want of something that it needs, and is run again"] if self.retried else []
        return [*own, *inputs, *rebuilt, *retried]

    def to_json(self) -> dict[str, Any]:
        """Flat: inputs by name, not nested."""
        return {
            "name": self.spec.name,
            "partition": self.spec.partition,
            "fingerprint": self.spec.fingerprint,
            "state": self.state.value,
            "changes": [{"field": c.field, "old": c.old, "new": c.new} for c in self.changes],
            "rebuilt_inputs": list(self.rebuilt),
            "inputs": [{"name": i.spec.name, "partition": i.spec.partition} for i in self.inputs],
        }


class StatusReader:
    """Reads each artifact's status once, whatever the number of paths that lead to it."""

    def __init__(self, store: Store | None):
        """Without a store everything is missing."""
        self._store = store
        self._known: dict[str, ArtifactStatus] = {}
        self._earlier: dict[str, list[ArtifactRecord]] = {}

    def status(self, spec: ArtifactSpec) -> ArtifactStatus:
        if spec.fingerprint not in self._known:
            inputs = tuple(self.status(upstream) for upstream in spec.inputs.values())
            self._known[spec.fingerprint] = self._judge(spec, inputs)
        return self._known[spec.fingerprint]

    def _judge(self, spec: ArtifactSpec, inputs: tuple[ArtifactStatus, ...]) -> ArtifactStatus:
        if self._store is None:
            return ArtifactStatus(spec, State.MISSING, inputs=inputs)
        record = self._store.record(spec.name, spec.fingerprint)
        if record is None:
            closest = self.closest(spec)
            changes = _changes(closest, spec) if closest else ()
            return ArtifactStatus(spec, State.MISSING, changes, inputs=inputs)
        rebuilt = tuple(self._store.rebuilt_inputs(record))
        retried = bool(record.summary.get("retryable"))
        state = State.STALE if rebuilt or retried else State.COMMITTED
        return ArtifactStatus(spec, state, (), rebuilt, retried, inputs)

    def closest(self, spec: ArtifactSpec) -> ArtifactRecord | None:
        """The committed artifact of the same name and partition that is most similar to what `spec` says, the newest
        of those that are equally so."""
        if self._store is None:
            return None
        if spec.name not in self._earlier:
            self._earlier[spec.name] = self._store.records(spec.name)
        earlier = [record for record in reversed(self._earlier[spec.name]) if record.partition == spec.partition]
        return min(earlier, key=lambda record: len(_changes(record, spec)), default=None)


def graph_status(graph: LabGraph, store: Store | None) -> ArtifactStatus:
    """The status of the whole graph, as a tree from everything that nothing is made of up to the sources; without a
    store, of one that is empty."""
    reader = StatusReader(store)
    specs = list(graph.unpartitioned())
    used = {upstream.fingerprint for spec in specs for upstream in spec.inputs.values()}
    ends = [reader.status(spec) for spec in reversed(specs) if spec.fingerprint not in used]
    return ArtifactStatus(ArtifactSpec("delphi/*", "", ""), State.COMMITTED, inputs=tuple(ends))


def walk(status: ArtifactStatus) -> Iterator[ArtifactStatus]:
    """Every artifact once, inputs before what is made of them."""
    seen: set[str] = set()

    def visit(node: ArtifactStatus) -> Iterator[ArtifactStatus]:
        for upstream in node.inputs:
            if upstream.spec.fingerprint not in seen:
                seen.add(upstream.spec.fingerprint)
                yield from visit(upstream)
                yield upstream

    return visit(status)


def _changes(record: ArtifactRecord, spec: ArtifactSpec) -> tuple[FieldChange, ...]:
    return tuple(payload_changes(record.payload, spec.payload))


def _changed_roles(changes: Sequence[FieldChange]) -> list[str]:
    """The roles among fields like `inputs.<role>.fingerprint`; a role may hold dots itself."""
    fields = [c.field.removeprefix("inputs.") for c in changes if c.field.startswith("inputs.")]
    return list(dict.fromkeys(f.removesuffix(".fingerprint").removesuffix(".name") for f in fields))


def is_partition(status: ArtifactStatus) -> bool:
    """Whether it is one of many alike: a run of the ladder, or what is made of one."""
    return status.spec.partition is not None
