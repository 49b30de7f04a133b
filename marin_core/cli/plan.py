"""`marin plan`: what is in the store, what is missing, and why something would be built again."""

import json

import click
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.status import ArtifactStatus, State, graph_status, is_cell, walk
from marin_core.store import Store

_MARKS = {State.COMMITTED: ("✓", "green"), State.MISSING: ("○", "yellow"), State.STALE: ("↻", "magenta")}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def plan(as_json: bool, profile: str | None) -> None:
    """What is in the store, what is missing, and why something would be built again."""
    loaded = load_profile(profile)
    tree = graph_status(LabGraph.of(loaded), Store(loaded.place.store))
    statuses = list(walk(tree))
    if as_json:
        click.echo(json.dumps([status.to_json() for status in statuses], indent=2))
        return
    console = Console(highlight=False)
    console.print(_tree(tree, f"profile {loaded.name}, store {loaded.place.store}"))
    counts = {state: sum(s.state is state for s in statuses) for state in State}
    console.print(", ".join(f"{count} {state.value}" for state, count in counts.items() if count))


def _tree(root: ArtifactStatus, title: str) -> Tree:
    tree = Tree(escape(title))
    shown: set[str] = set()

    def add(parent: Tree, status: ArtifactStatus) -> None:
        branch = parent.add(_line(status, status.spec.name))
        if status.spec.fingerprint in shown:
            return
        shown.add(status.spec.fingerprint)
        _add_reasons(branch, status)
        _add_cells(branch, [s for s in status.inputs if is_cell(s)])
        for upstream in _lifted(status):
            add(branch, upstream)

    for end in root.inputs:
        add(tree, end)
    return tree


def _lifted(status: ArtifactStatus) -> list[ArtifactStatus]:
    """Inputs to show below an artifact: its cells' own inputs instead of the cells, which are summed up."""
    found: dict[str, ArtifactStatus] = {}
    for upstream in status.inputs:
        for shown in upstream.inputs if is_cell(upstream) else (upstream,):
            found[shown.spec.fingerprint] = shown
    return list(found.values())


def _add_cells(branch: Tree, cells: list[ArtifactStatus]) -> None:
    if not cells:
        return
    missing = [cell for cell in cells if cell.state is not State.COMMITTED]
    name = cells[0].spec.name
    node = branch.add(f"{len(cells) - len(missing)} of {len(cells)} runs of {name} committed")
    for cell in missing:
        _add_reasons(node.add(_line(cell, str(cell.spec.partition))), cell)


def _line(status: ArtifactStatus, name: str) -> str:
    mark, colour = _MARKS[status.state]
    return f"[{colour}]{mark} {status.state.value:9}[/] {escape(name)} [dim]{status.spec.fingerprint}[/]"


def _add_reasons(branch: Tree, status: ArtifactStatus) -> None:
    for reason in status.reasons():
        branch.add(f"because {escape(reason)}", style="magenta")
