"""Why two artifacts of one name are not the same: the fields that differ by themselves, found below all those that
differ only because an input does."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_core.store import ArtifactRecord, ArtifactSpec, FieldChange, payload_changes

INPUTS = "inputs."


# A committed record, or the spec of what may not be committed.
Identified = ArtifactRecord | ArtifactSpec
# From name and fingerprint to what is known of that artifact.
Find = Callable[[str, str], Identified | None]


@dataclass(frozen=True)
class Step:
    """On the way to a root change: an artifact that differs because an input does, `count` partitions of it."""

    name: str
    count: int


@dataclass(frozen=True)
class PartitionChange:
    """The two values of a field, in one partition or in what has none; None where a side lacks the field."""

    partition: str | None
    old: Any
    new: Any


@dataclass(frozen=True)
class RootChange:
    """A field in which two artifacts differ by themselves.

    `name` is the artifact and `field` its field: `config.…`, `code_version`, `task`, or `inputs.<role>` where a role is
    on one side alone, is filled by an artifact of another name, or by one that is gone. `through` leads from what was
    asked about, not in it, to the artifact, not in it either. `values` are those of its partitions.
    """

    name: str
    field: str
    values: tuple[PartitionChange, ...]
    through: tuple[Step, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether the field differs in the same way in all partitions."""
        return all((value.old, value.new) == (self.values[0].old, self.values[0].new) for value in self.values)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "field": self.field,
            "values": [{"partition": value.partition, "old": value.old, "new": value.new} for value in self.values],
            "through": [{"name": step.name, "count": step.count} for step in self.through],
        }


@dataclass
class _Node:
    """What is found of one artifact name: its pairs that were compared, whose inputs differ, and its own changes."""

    pairs: set[tuple[str, str]] = field(default_factory=set)
    below: dict[str, None] = field(default_factory=dict)
    own: dict[str, list[PartitionChange]] = field(default_factory=dict)


def root_changes(pairs: Iterable[tuple[Identified, Identified]], find: Find) -> list[RootChange]:
    """The root changes between earlier and later artifacts of one name, nearest first."""
    nodes: dict[str, _Node] = {}
    top = [_compare(old, new, find, nodes) for old, new in pairs]
    paths: dict[str, tuple[str, ...]] = dict.fromkeys(top, ())
    queue = list(paths)
    for name in queue:
        for below in nodes[name].below:
            if below not in paths:
                paths[below] = (*paths[name], name)
                queue.append(below)
    return [
        RootChange(name, changed, tuple(values), tuple(Step(on, len(nodes[on].pairs)) for on in paths[name][1:]))
        for name in queue
        for changed, values in nodes[name].own.items()
    ]


def _compare(old: Identified, new: Identified, find: Find, nodes: dict[str, _Node]) -> str:
    node = nodes.setdefault(new.name, _Node())
    pair = (old.fingerprint, new.fingerprint)
    if pair in node.pairs or old.fingerprint == new.fingerprint:
        return new.name
    node.pairs.add(pair)
    for change in payload_changes(_without_inputs(old), _without_inputs(new)):
        node.own.setdefault(change.field, []).append(PartitionChange(new.partition, change.old, change.new))
    before, after = old.payload["inputs"], new.payload["inputs"]
    for role in sorted({*before, *after}):
        if (change := _changed_input(before.get(role), after.get(role), find, nodes, node)) is not None:
            found = node.own.setdefault(f"{INPUTS}{role}", [])
            found.append(PartitionChange(new.partition, change.old, change.new))
    return new.name


def _changed_input(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, find: Find, nodes: dict[str, _Node], node: _Node
) -> FieldChange | None:
    """What is to be said of an input itself; None if it is the same, or what differs is found below it."""
    if old == new:
        return None
    if old is not None and new is not None and old["name"] == new["name"]:
        first, second = (find(one["name"], one["fingerprint"]) for one in (old, new))
        if first is not None and second is not None:
            node.below[_compare(first, second, find, nodes)] = None
            return None
    return FieldChange("", old, new)


def _without_inputs(one: Identified) -> dict[str, Any]:
    return {key: numbered(value) for key, value in one.payload.items() if key != "inputs"}


def numbered(value: Any) -> Any:
    """With lists of tables as tables by position, so that what differs in one of them is found."""
    if isinstance(value, Mapping):
        return {key: numbered(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and all(isinstance(inner, Mapping) for inner in value):
        return {str(position): numbered(inner) for position, inner in enumerate(value)}
    return value


def leaves(value: Mapping[str, Any], prefix: str = "", *, empty: bool = False) -> Iterator[tuple[str, Any]]:
    """The dotted name and the value of every leaf of a nested mapping; lists are leaves, and if `empty` so is a mapping
    of nothing."""
    for name, inner in value.items():
        if not isinstance(inner, Mapping) or (empty and not inner):
            yield f"{prefix}{name}", inner
        else:
            yield from leaves(inner, f"{prefix}{name}.", empty=empty)
