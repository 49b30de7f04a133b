"""Two runs beside each other: their settings, data, code and outcome."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from marin_core.records.difference import INPUTS, Find, Identified, RootChange, leaves, numbered, root_changes
from marin_core.records.outcome import Outcome
from marin_core.store import ArtifactRecord, canonical_json

# Of an outcome, what tells how the run went; the rest says where.
_OUTCOME = ("status", "exit_class", "reason", "last_step", "loss", "pool", "chip_hours", "preemptions", "failures")
# Settings that a summary repeats.
_SETTINGS = ("flops", "hidden_dim")
# The settings of a training run are those of its plan.
_PLAN = "plan."


@dataclass(frozen=True)
class Side:
    """One of the two. `made` says what it is made of, None where nobody knows; `record` is the artifact that the run
    committed, None if it did not; `outcome` is what was recorded of the run, None if nothing was."""

    label: str
    made: Identified | None
    record: ArtifactRecord | None
    outcome: Outcome | None

    def to_json(self) -> dict[str, Any]:
        known = self.made or self.outcome
        return {
            "label": self.label,
            "name": self.made.name if self.made else self.outcome.asset if self.outcome else None,
            "partition": known.partition if known else None,
            "fingerprint": known.fingerprint if known else None,
            "committed": self.record is not None,
            "record": self.outcome.record if self.outcome else None,
        }


@dataclass(frozen=True)
class Row:
    """A field on both sides; None where a side has none."""

    field: str
    first: Any
    second: Any

    @property
    def differs(self) -> bool:
        return canonical_json(self.first) != canonical_json(self.second)

    def to_json(self) -> dict[str, Any]:
        return {"field": self.field, "first": self.first, "second": self.second}


@dataclass(frozen=True)
class SideBySide:
    """The rows of two sides. `data` has the identity of each artifact upstream, and where one differs by itself, the
    fields in which it does."""

    first: Side
    second: Side
    config: tuple[Row, ...]
    data: tuple[Row, ...]
    code: tuple[Row, ...]
    outcome: tuple[Row, ...]

    @property
    def sections(self) -> dict[str, tuple[Row, ...]]:
        return {"config": self.config, "data": self.data, "code": self.code, "outcome": self.outcome}

    def to_json(self, *, everything: bool) -> dict[str, Any]:
        rows = {
            name: [row.to_json() for row in rows if everything or row.differs] for name, rows in self.sections.items()
        }
        return {"first": self.first.to_json(), "second": self.second.to_json(), **rows}


def side_by_side(first: Side, second: Side, find: Find) -> SideBySide:
    """Compare two runs. `find` looks up what they are made of."""
    return SideBySide(
        first,
        second,
        config=_rows(_config(first), _config(second)),
        data=_data(first, second, find),
        code=_rows(_code(first), _code(second)),
        outcome=_rows(_outcome(first), _outcome(second)),
    )


def _rows(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Row, ...]:
    return tuple(Row(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second]))


def _config(side: Side) -> dict[str, Any]:
    if side.made is None:
        return {}
    settings = dict(leaves(numbered(side.made.payload["config"])))
    return {name.removeprefix(_PLAN): value for name, value in settings.items()}


def _code(side: Side) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if side.made:
        found = {"task": side.made.payload["task"], "code_version": side.made.payload["code_version"]}
    if side.record:
        made = side.record.provenance
        return {**found, "commit": made.commit, "dirty": made.dirty, "python": made.python, "command": made.command}
    if side.outcome:
        found |= {"commit": side.outcome.commit, "dirty": side.outcome.dirty, "command": side.outcome.command}
    return found


def _outcome(side: Side) -> dict[str, Any]:
    """The artifact's own numbers, and what was recorded of the run that made it or failed to."""
    outcome, record = side.outcome, side.record
    found: dict[str, Any] = {"status": "not built"}
    if outcome:
        found |= {name: value for name in _OUTCOME if (value := outcome.to_json()[name]) is not None}
        found |= _times(outcome.began, outcome.ended)
    if record:
        numbers = {name: value for name, value in leaves(record.summary) if name not in _SETTINGS}
        # What was recorded of the run counts, since it may have been corrected.
        found |= {"status": "succeeded", **numbers} | ({"status": outcome.status} if outcome else {})
        found |= {**_times(record.provenance.started, record.provenance.ended), "retries": record.provenance.retries}
    return found


def _times(began: str | None, ended: str) -> dict[str, Any]:
    if began is None:
        return {"ended": ended}
    seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    return {"began": began, "ended": ended, "wall_seconds": round(seconds, 1)}


def _data(first: Side, second: Side, find: Find) -> tuple[Row, ...]:
    upstream = [_upstream(side.made, find) if side.made else {} for side in (first, second)]
    rows = list(_rows(*upstream))
    if first.made is None or second.made is None:
        return tuple(rows)
    for change in root_changes([(first.made, second.made)], find):
        # A field of the runs themselves is in another section, and an input that only one has is among the rows.
        if change.name != second.made.name and not change.field.startswith(INPUTS):
            rows += _changed(change)
    return tuple(sorted(rows, key=lambda row: row.field))


def _changed(change: RootChange) -> list[Row]:
    """A row for all partitions together where they differ alike, else one for each."""
    first, *others = change.values
    if change.alike:
        many = f" ({len(change.values)} runs)" if others else ""
        return [Row(f"{change.name}{many} {change.field}", first.old, first.new)]
    return [Row(f"{change.name} [{one.partition}] {change.field}", one.old, one.new) for one in change.values]


def _upstream(made: Identified, find: Find) -> dict[str, str]:
    """Everything that it is made of, by name: the fingerprint, and the content that was read. Of a plan, the content is
    what would be read now, where that is committed."""
    found: dict[str, str] = {}

    def visit(one: Identified) -> None:
        for name, fingerprint, read in _inputs(one):
            upstream = find(name, fingerprint)
            content = read or (upstream.content if isinstance(upstream, ArtifactRecord) else "")
            label = f"{name} [{upstream.partition}]" if upstream and upstream.partition else name
            if label not in found:
                found[label] = f"{fingerprint} {content}".rstrip()
                if upstream is not None:
                    visit(upstream)

    visit(made)
    return found


def _inputs(one: Identified) -> list[tuple[str, str, str]]:
    """Name, fingerprint and content of each, the content empty where nothing was read yet."""
    if isinstance(one, ArtifactRecord):
        return [(entry.name, entry.fingerprint, entry.content) for entry in one.inputs.values()]
    return [(spec.name, spec.fingerprint, "") for spec in one.inputs.values()]
