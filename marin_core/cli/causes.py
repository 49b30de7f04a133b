"""Causes in words: which field changed, and how that came to matter."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.markup import escape

from marin_core.cli.printing import value_text
from marin_core.records.difference import INPUTS, RootChange, Step
from marin_core.status import Explanation

# A longer value is cut, and more partitions or roles than these are counted.
_LONGEST = 60
# Of what two long values have in common at their beginning, so many characters are shown.
_BEFORE = 20
_SHOWN = 4


def cause_lines(found: Explanation) -> Iterator[tuple[str, int]]:
    """Lines with their level of indentation. What changed alike in several artifacts is told once."""
    told: dict[tuple[tuple[Step, ...], tuple[str, ...]], list[RootChange]] = {}
    for (through, _), group in groupby(found.changes, key=lambda change: (change.through, change.name)):
        changes = list(group)
        told.setdefault((through, tuple(change_lines(changes))), []).append(_with_most_partitions(changes))
    for (through, lines), changed in told.items():
        if changed[0].name == found.name:
            yield from ((f"because {line}", 1) for line in lines)
            continue
        way = "".join(f"{_step(step)} changed because " for step in through)
        names = ", ".join(_counted(change.name, len(change.values)) for change in changed)
        yield f"because {way}[bold]{names}[/] changed:", 1
        yield from ((line, 2) for line in lines)
    for role, name, built, count in _rebuilt(found):
        of = f" ({count} runs)" if count > 1 else ""
        yield f"because its input {escape(role)}{of} was built again at {built}, with other content than was read", 1
        if name != role:
            yield f"[dim]{escape(role)} is {escape(name)}[/]", 2
    if any(status.retried for status in found.statuses):
        yield "because it failed for want of something that it needs, and is run again", 1


def _with_most_partitions(changes: Sequence[RootChange]) -> RootChange:
    return max(changes, key=lambda change: len(change.values))


def _counted(name: str, count: int) -> str:
    return f"{escape(name)} ({count} runs)" if count > 1 else escape(name)


def change_lines(changes: Sequence[RootChange]) -> list[str]:
    """One line for each field, and one for all inputs that came or went."""
    lines = [_line(change) for change in changes if not _comes_or_goes(change)]
    inputs = [change for change in changes if _comes_or_goes(change)]
    for words, side in (("it is now made of", "new"), ("it is no longer made of", "old")):
        roles = [_role(change, side) for change in inputs if getattr(change.values[0], side) is not None]
        if roles:
            more = f" and {len(roles) - _SHOWN} more" if len(roles) > _SHOWN else ""
            also = " too" if side == "new" else ""
            lines.append(f"{words} {escape(', '.join(roles[:_SHOWN]))}{more}{also}")
    return lines


def shown(old: Any, new: Any) -> str:
    """Two values of a payload: numbers with few digits where those tell them apart, of long ones where they differ."""
    numbers = isinstance(old, float) and isinstance(new, float)
    if numbers and value_text(old) != value_text(new):
        return f"{value_text(old)} -> {value_text(new)}"
    texts = [json.dumps(value, ensure_ascii=False) for value in (old, new)]
    pairs = zip(*texts, strict=False)
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(map(len, texts)))
    start = max(0, same - _BEFORE) if max(map(len, texts)) > _LONGEST else 0
    return " -> ".join(_cut(text, start) for text in texts)


def _cut(text: str, start: int) -> str:
    """As many characters as one reads, from `start` on."""
    shown = text if start == 0 else f"…{text[start:]}"
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _line(change: RootChange) -> str:
    first = change.values[0]
    if change.field == "code_version":
        return f"the code that makes it changed: version {first.old} -> {first.new}"
    if change.field == "task":
        return f"another task makes it: {first.old} -> {first.new}"
    if change.field.startswith(INPUTS):
        return _other_input(change)
    values = escape(shown(first.old, first.new))
    if change.alike:
        return f"{escape(change.field)}: {values}"
    more = f", and differently in {len(change.values) - 1} more"
    return f"{escape(change.field)}: {values}{escape(f' [{first.partition}]' if first.partition else '')}{more}"


def _other_input(change: RootChange) -> str:
    """An input that another asset fills, or whose earlier build cannot be looked into."""
    role, first = change.field.removeprefix(INPUTS), change.values[0]
    if first.old["name"] != first.new["name"]:
        return escape(f"its input {role} was {first.old['name']}, and is {first.new['name']} now")
    return escape(f"its input {role} was {first.old['fingerprint']}, which is gone from the store")


def _comes_or_goes(change: RootChange) -> bool:
    first = change.values[0]
    return change.field.startswith(INPUTS) and (first.old is None or first.new is None)


def _role(change: RootChange, side: str) -> str:
    """The asset, and the partition where the role is one."""
    role, name = change.field.removeprefix(INPUTS), getattr(change.values[0], side)["name"]
    return name if role in name else f"{name} [{role}]"


def _step(step: Step) -> str:
    return _counted(step.name, step.count)


def _rebuilt(found: Explanation) -> list[tuple[str, str, str, int]]:
    """Each input that was built again: its role, name, when, and how many partitions of it read that."""
    counted: dict[tuple[str, str], list[str]] = {}
    for one in found.rebuilt:
        key = (one.role, one.record.name) if one.record.partition is None else (one.record.name, one.record.name)
        counted.setdefault(key, []).append(one.record.provenance.ended)
    return [(role, name, f"{max(t)[:10]} {max(t)[11:16]} UTC", len(t)) for (role, name), t in counted.items()]
