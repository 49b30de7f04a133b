"""Stages: the numbered, idempotent pieces that every data artifact is made of, and the ranks that share them.

A stage is a few phases in order; a phase is a number of items, each of which writes its own files and returns counts.
An item that is done leaves a marker in the workspace's intermediate folder: a killed stage goes on where it was. Items
depend on the stage's inputs and config alone, so the bytes are the same for any number of ranks. What items do is not
here but in the modules of the stages.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.errors import MarinError
from marin_core.store import Workspace

Counts = dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """`items` calls of `run`, in any order and on any rank; all are done before the next phase begins.

    Where only the phases before tell how many there are, `items` is asked when the phase begins, on every rank.
    """

    name: str
    items: int | Callable[[], int]
    run: Callable[[int], Counts]

    def size(self) -> int:
        return self.items() if callable(self.items) else self.items


@dataclass(frozen=True)
class Stage:
    """`finish` gets the counts of every item, phase by phase, and returns the summary for the artifact's record."""

    phases: tuple[Phase, ...]
    finish: Callable[[Sequence[Sequence[Counts]]], Counts]


@dataclass(frozen=True)
class Progress:
    """Where a stage is: items done of its current phase."""

    phase: str
    done: int
    items: int


def run_items(
    phase: Phase,
    workspace: Workspace,
    *,
    rank: int = 0,
    world: int = 1,
    report: Callable[[Progress], None] = lambda progress: None,
) -> None:
    """Run this rank's share of a phase: items `rank`, `rank + world`, … that are not done yet.

    Raises:
        LeaseLost: the artifact has another writer now.
        MarinError: whatever an item found wrong.
    """
    mine = range(rank, phase.size(), world)
    done = _counts(workspace, phase, mine)
    for number, item in enumerate(mine):
        if item not in done:
            workspace.check()
            counts = phase.run(item)
            with workspace.open_work(_marker(phase, item)) as file:
                file.write(json.dumps(counts).encode())
        report(Progress(phase.name, number + 1, len(mine)))


def counts_of(phase: Phase, workspace: Workspace) -> list[Counts]:
    """The counts of every item of a phase.

    Raises:
        MarinError: an item is not done.
    """
    items = range(phase.size())
    done = _counts(workspace, phase, items)
    missing = [item for item in items if item not in done]
    if missing:
        raise MarinError(
            f"{workspace.url}: {len(missing)} of {len(items)} items of phase {phase.name!r} are not done "
            f"(the first is {missing[0]}); run the ranks that own them again"
        )
    return [done[item] for item in items]


def run_stage(
    stage: Stage,
    workspace: Workspace,
    run_phase: Callable[[Phase], None] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Counts:
    """Run a stage phase by phase and return its summary. `run_phase` replaces running the items in this process, for
    instance by starting ranks."""
    counts = []
    for phase in stage.phases:
        if run_phase is None:
            run_items(phase, workspace, report=report)
        else:
            run_phase(phase)
        counts.append(counts_of(phase, workspace))
    return stage.finish(counts)


def total(counts: Sequence[Counts]) -> Counts:
    """Counts added up key by key; nested tables of counts too."""
    summed: Counts = {}
    for each in counts:
        for key, value in each.items():
            summed[key] = total([summed.get(key, {}), value]) if isinstance(value, dict) else summed.get(key, 0) + value
    return summed


def _folder(phase: Phase) -> str:
    return f"done/{phase.name}"


def _marker(phase: Phase, item: int) -> str:
    return f"{_folder(phase)}/{item:05d}.json"


def _counts(workspace: Workspace, phase: Phase, items: Sequence[int]) -> dict[int, Counts]:
    """The counts of those of the items that are done."""
    there = workspace.list_work(_folder(phase))
    markers = {_marker(phase, item): item for item in items}
    done = {}
    for path, data in workspace.read_work(path for path in markers if path in there).items():
        with contextlib.suppress(ValueError):  # a kill cut the marker off
            done[markers[path]] = json.loads(data)
    return done
