"""A lineage drawn as a tree for people: partitions summed up, each artifact told once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from marin_core.cli.printing import commit_text, minute, value_text
from marin_core.records.lineage import Key, Lineage, key_of, origin
from marin_core.store import ArtifactRecord, InputEntry

# Longer than this and a value of the summary is no headline.
_LONGEST = 60
# More settings than these are left to the artifact's record.
_MOST_SETTINGS = 8


def lineage_tree(lineage: Lineage, *, summed: bool) -> Tree:
    """The tree; with `summed`, partitions of one asset that were read together are one line."""
    return _Drawing(lineage, summed).root()


class _Drawing:
    def __init__(self, lineage: Lineage, summed: bool):
        self._lineage, self._summed = lineage, summed
        self._told: set[Key] = set()

    def root(self) -> Tree:
        root = self._lineage.root
        tree = Tree(_line(root))
        for name, value in flat(root.summary):
            tree.add(f"[cyan]{escape(name)}[/] {escape(value)}")
        self._told.add(key_of(root))
        self._add_made_of(tree, [root])
        return tree

    def _add_inputs(self, branch: Tree, records: Iterable[ArtifactRecord]) -> None:
        """What the records read, as one list: what several read is told once."""
        entries = {
            (entry.name, entry.fingerprint, self._lineage.changed(entry)): entry
            for record in records
            for entry in self._lineage.inputs(record).values()
        }
        groups: dict[tuple[str, str], list[InputEntry]] = {}
        for entry in entries.values():
            groups.setdefault((entry.name, self._group(entry)), []).append(entry)
        for group in groups.values():
            self._add(branch, group)

    def _group(self, entry: InputEntry) -> str:
        found = self._lineage.found(entry)
        return "partitions" if self._summed and found and found.partition else entry.fingerprint

    def _add(self, branch: Tree, group: Sequence[InputEntry]) -> None:
        found = [record for entry in group if (record := self._lineage.found(entry))]
        if not found:
            branch.add(f"[red]✗[/] {escape(group[0].name)} [dim]{group[0].fingerprint}[/] [red]gone from the store[/]")
            return
        changed = sum(self._lineage.changed(entry) for entry in group)
        line = _line(found[0]) if len(group) == 1 else _summed_line(found)
        if all(key_of(record) in self._told for record in found):
            branch.add(f"{line}{_mark(changed, len(group))} [dim]told above[/]")
            return
        self._told |= {key_of(record) for record in found}
        self._add_made_of(branch.add(line + _mark(changed, len(group))), found)

    def _add_made_of(self, branch: Tree, records: Sequence[ArtifactRecord]) -> None:
        if any(key_of(record) in self._lineage.cut for record in records):
            branch.add("[dim]…[/]")
        elif len(records) == 1 and (came_from := origin(records[0])) is not None:
            branch.add(f"[dim]from[/] {escape(_origin_line(came_from))}")
        self._add_inputs(branch, records)


def _origin_line(came_from: Any) -> str:
    leaves = flat(came_from, longest=None)
    if len(leaves) > _MOST_SETTINGS:
        return f"its settings alone, {len(leaves)} of them"
    return ", ".join(f"{name} {value}".strip() for name, value in leaves)


def flat(value: Any, prefix: str = "", longest: int | None = _LONGEST) -> list[tuple[str, str]]:
    """The leaves of something nested as names and texts; with `longest`, without those that are longer."""
    if isinstance(value, Mapping):
        return [leaf for key, inner in value.items() for leaf in flat(inner, f"{prefix}{key} ", longest)]
    text = value_text(value)
    return [] if longest is not None and len(text) > longest else [(prefix.rstrip(), text)]


def _line(record: ArtifactRecord) -> str:
    partition = f" [{record.partition}]" if record.partition else ""
    made = record.provenance
    return (
        f"[bold]{escape(record.name + partition)}[/] [dim]{record.fingerprint}[/]  "
        f"{_commit(record)}  [dim]{minute(made.ended)}[/]"
    )


def _summed_line(records: Sequence[ArtifactRecord]) -> str:
    what = "runs" if records[0].payload["task"] == "train" else "partitions"
    commits = Counter(_commit(record) for record in records)
    if len(commits) == 1:
        told = f"all of {next(iter(commits))}"
    else:
        told = ", ".join(f"{count} of {commit}" for commit, count in commits.most_common())
    times = sorted(minute(record.provenance.ended) for record in records)
    span = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return f"[bold]{len(records)} {what} of {escape(records[0].name)}[/]  {told}  [dim]{span}[/]"


def _commit(record: ArtifactRecord) -> str:
    made = record.provenance
    return commit_text(made.commit) + (" [yellow]dirty[/]" if made.dirty else "")


def _mark(changed: int, of: int) -> str:
    if not changed:
        return ""
    return f" [magenta]{'changed since it was read' if of == 1 else f'{changed} changed since they were read'}[/]"
