"""Why an asset would be built again, or why not: followed down to the fields that changed."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.graph import LabGraph
from marin_core.records.difference import RootChange, root_changes
from marin_core.records.lookup import finder
from marin_core.status.reader import ArtifactStatus, State, StatusReader, walk
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
from marin_core.store.store import ATTEMPT


@dataclass(frozen=True)
class Rebuilt:
    """An input that was built again, with other content than the committed artifact read."""

    partition: str | None
    role: str
    record: ArtifactRecord

    def to_json(self) -> dict[str, Any]:
        made = self.record.provenance
        return {
            "partition": self.partition,
            "role": self.role,
            "name": self.record.name,
            "fingerprint": self.record.fingerprint,
            "built": made.ended,
            "commit": made.commit,
        }


@dataclass(frozen=True)
class Explanation:
    """The answer for one asset: one status, or one for each of its partitions.

    `committed` are the records of those that are, also where they are stale; `compared` those of earlier builds of what
    is missing, of which what was never built has none. `changes` and `rebuilt` are the causes; `attempts` says by
    partition when a build began that has not ended. `to_build` is everything that a build would make, inputs first;
    `training_runs` counts the training runs in it and the held-out runs that it would start. `upstream` is what
    committed artifacts are made of that is not committed as it would be built now.
    """

    name: str
    statuses: tuple[ArtifactStatus, ...]
    committed: tuple[ArtifactRecord, ...]
    compared: tuple[ArtifactRecord, ...]
    changes: tuple[RootChange, ...]
    rebuilt: tuple[Rebuilt, ...]
    attempts: dict[str | None, str]
    to_build: tuple[ArtifactStatus, ...]
    training_runs: int
    upstream: tuple[ArtifactStatus, ...]

    @property
    def counts(self) -> dict[State, int]:
        counted = Counter(status.state for status in self.statuses)
        return {state: counted[state] for state in State if counted[state]}

    @property
    def never_built(self) -> tuple[ArtifactStatus, ...]:
        """Those that are missing and have no earlier build."""
        known = {record.partition for record in self.compared}
        return tuple(s for s in self.statuses if s.state is State.MISSING and s.spec.partition not in known)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "artifacts": [
                {"partition": s.spec.partition, "fingerprint": s.spec.fingerprint, "state": s.state.value}
                for s in self.statuses
            ],
            "never_built": [status.spec.fingerprint for status in self.never_built],
            "changes": [change.to_json() for change in self.changes],
            "rebuilt": [one.to_json() for one in self.rebuilt],
            "retried": [status.spec.fingerprint for status in self.statuses if status.retried],
            "attempts": [{"partition": key, "began": began} for key, began in self.attempts.items()],
            "to_build": [_named(status) for status in self.to_build],
            "training_runs": self.training_runs,
            "upstream_not_committed": [_named(status) for status in self.upstream],
        }


def explain(specs: Sequence[ArtifactSpec], graph: LabGraph, store: Store) -> Explanation:
    """Why the artifacts of one asset would be built again, or why not."""
    reader = StatusReader(store)
    statuses = tuple(reader.status(spec) for spec in specs)
    pairs = [(old, s.spec) for s in statuses if s.state is State.MISSING and (old := reader.closest(s.spec))]
    committed = [store.record(s.spec.name, s.spec.fingerprint) for s in statuses if s.state is not State.MISSING]
    owed = [status for status in statuses if status.state is not State.COMMITTED]
    to_build = _not_committed(owed)
    known = {status.spec.fingerprint for status in to_build}
    committed_upstream = _not_committed([status for status in statuses if status.state is State.COMMITTED])
    return Explanation(
        name=specs[0].name,
        statuses=statuses,
        committed=tuple(record for record in committed if record),
        compared=tuple(old for old, _ in pairs),
        changes=tuple(root_changes(pairs, finder(store, *(one for pair in pairs for one in pair)))),
        rebuilt=tuple(one for status in statuses for one in _rebuilt(status, store)),
        attempts={s.spec.partition: began for s in statuses if (began := _attempt(s, store))},
        to_build=to_build,
        training_runs=_training_runs(to_build, graph, store),
        upstream=tuple(status for status in committed_upstream if status.spec.fingerprint not in known),
    )


def _rebuilt(status: ArtifactStatus, store: Store) -> list[Rebuilt]:
    if not status.rebuilt:
        return []
    record = store.artifact(status.spec).record
    found = [(role, store.record(entry.name, entry.fingerprint)) for role, entry in record.inputs.items()]
    return [Rebuilt(status.spec.partition, role, now) for role, now in found if now and role in status.rebuilt]


def _attempt(status: ArtifactStatus, store: Store) -> str | None:
    """When a build began that has not ended."""
    if status.state is not State.MISSING:
        return None
    stored = store.objects.read(f"{status.spec.name}/{status.spec.fingerprint}/{ATTEMPT}")
    return json.loads(stored.data)["started"] if stored else None


def _not_committed(statuses: Sequence[ArtifactStatus]) -> tuple[ArtifactStatus, ...]:
    """Those of the artifacts and of all that they are made of that are not committed, inputs first."""
    everything = walk(ArtifactStatus(ArtifactSpec("", "", ""), State.COMMITTED, inputs=tuple(statuses)))
    return tuple(status for status in everything if status.state is not State.COMMITTED)


def _named(status: ArtifactStatus) -> dict[str, str | None]:
    return {"name": status.spec.name, "partition": status.spec.partition, "state": status.state.value}


def _training_runs(owed: Sequence[ArtifactStatus], graph: LabGraph, store: Store) -> int:
    """The training runs among them. Held-out runs are no inputs, since a forecast says which models they are."""
    runs = {status.spec.fingerprint for status in owed if status.spec.task == "train"}
    fingerprints = {status.spec.fingerprint for status in owed}
    if graph.heldout.fingerprint not in fingerprints:
        return len(runs)
    if store.current(graph.forecast) is None:
        return len(runs) + len(graph.heldout_partitions)
    missing = store.all_current(list(graph.heldout_runs(store).values()))
    return len(runs | {fingerprint for fingerprint, record in missing.items() if record is None})
