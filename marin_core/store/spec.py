"""What an artifact is to be, known before it exists: its identity and the difference between two identities."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


def canonical_json(value: Any) -> str:
    """The one text form that is hashed: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(text: str) -> str:
    """16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ArtifactSpec:
    """An artifact before it is built: `name` (also its asset key), how it is made, and from what.

    `task` names an entry of `marin_core.tasks`; `config` holds every setting that changes bytes, as JSON;
    `code_version` changes when the task's code changes the bytes it writes; `inputs` maps a role to the spec that
    fills it. Not part of the identity: where it is stored, which machine, which image. `partition` is the
    Dagster partition the artifact stands for, if any; `context` is what a worker must be told but changes no bytes,
    for instance in which folder a source's files are.
    """

    name: str
    task: str
    code_version: str
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, "ArtifactSpec"] = field(default_factory=dict)
    partition: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def payload(self) -> dict[str, Any]:
        """What is hashed. Kept whole in the record, so that two identities can be compared field by field."""
        return {
            "name": self.name,
            "task": self.task,
            "code_version": self.code_version,
            "config": json.loads(canonical_json(self.config)),
            "inputs": {
                role: {"name": spec.name, "fingerprint": spec.fingerprint} for role, spec in self.inputs.items()
            },
        }

    @cached_property
    def fingerprint(self) -> str:
        return digest(canonical_json(self.payload))

    @property
    def label(self) -> str:
        """For messages: the name, with the partition where there is one."""
        return f"{self.name} [{self.partition}]" if self.partition else self.name

    def to_json(self) -> dict[str, Any]:
        """Complete, inputs included; `from_json` restores it. This is the plan that a worker reads.

        Each spec is written down once, however many ways lead to it: those of a suite are many.
        """
        specs: dict[str, Any] = {}

        def add(spec: "ArtifactSpec") -> str:
            key = f"{spec.fingerprint} {spec.partition or ''}".rstrip()
            if key not in specs:
                specs[key] = {
                    "name": spec.name,
                    "task": spec.task,
                    "code_version": spec.code_version,
                    "config": dict(spec.config),
                    "inputs": {role: add(upstream) for role, upstream in spec.inputs.items()},
                    "partition": spec.partition,
                    "context": dict(spec.context),
                }
            return key

        return {"root": add(self), "specs": specs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ArtifactSpec":
        built: dict[str, ArtifactSpec] = {}

        def make(key: str) -> "ArtifactSpec":
            if key not in built:
                spec = data["specs"][key]
                built[key] = cls(**{**spec, "inputs": {role: make(other) for role, other in spec["inputs"].items()}})
            return built[key]

        return make(data["root"])


@dataclass(frozen=True)
class FieldChange:
    """One differing field of two payloads; None where a side lacks it."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {json.dumps(self.old)} -> {json.dumps(self.new)}"


def payload_changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[FieldChange]:
    """The differing leaves of two payloads, in the order of their names."""
    for key in sorted({*old, *new}):
        a, b, name = old.get(key), new.get(key), f"{prefix}{key}"
        same = (key in old) == (key in new) and canonical_json(a) == canonical_json(b)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from payload_changes(a, b, f"{name}.")
        elif not same:
            yield FieldChange(name, a, b)
