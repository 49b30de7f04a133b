"""`marin plan`: what is in the store, what is missing, and why something would be built again."""

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from marin_core.cli.dry_run import DryRun, dry_run
from marin_core.cli.dry_run_table import print_dry_run
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import Profile, load_profile
from marin_core.status import ArtifactStatus, State, graph_status, is_partition, walk
from marin_core.store import Store

_MARKS = {State.COMMITTED: ("✓", "green"), State.MISSING: ("○", "yellow"), State.STALE: ("↻", "magenta")}


@click.command()
@click.option("--dry-run", "dry", is_flag=True, help="The jobs that would be submitted: chips, memory, time, cost.")
@click.option("--manifests", is_flag=True, help="With --dry-run: their Kubernetes manifests on stdout, as YAML.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def plan(dry: bool, manifests: bool, as_json: bool, profile: str | None) -> None:
    """What is in the store, what is missing, and why something would be built again."""
    if manifests and not dry:
        raise click.UsageError("--manifests are those of a --dry-run; give both")
    loaded = load_profile(profile, dry=dry)
    if dry:
        _print_dry_run(dry_run(loaded), manifests=manifests, as_json=as_json)
    else:
        _print_plan(loaded, as_json=as_json)


def _print_plan(loaded: Profile, *, as_json: bool) -> None:
    tree = graph_status(LabGraph.of(loaded), Store(loaded.place.store))
    statuses = list(walk(tree))
    if as_json:
        click.echo(json.dumps([status.to_json() for status in statuses], indent=2))
        return
    console = Console(highlight=False)
    console.print(_tree(tree, f"profile {loaded.name}, store {loaded.place.store}"))
    counts = {state: sum(s.state is state for s in statuses) for state in State}
    console.print(", ".join(f"{count} {state.value}" for state, count in counts.items() if count))


def _print_dry_run(found: DryRun, *, manifests: bool, as_json: bool) -> None:
    """The table on stdout, or with manifests on stderr, so that `kubectl` can read stdout."""
    bodies = found.manifests() if manifests else None
    if as_json:
        click.echo(json.dumps(found.to_json() | ({} if bodies is None else {"manifests": bodies}), indent=2))
    else:
        console = Console(stderr=bodies is not None, highlight=False)
        if not console.is_terminal:
            console.width = 200
        print_dry_run(found, console)
        if bodies is not None:
            _echo_yaml(bodies)
    for refusal in found.refusals:
        click.echo(f"refused: {refusal}", err=True)
    if found.refusals:
        raise MarinError(f"{len(found.refusals)} refusals; with these pools and limits the suite would not be trained")


def _echo_yaml(bodies: list[dict[str, Any]]) -> None:
    import yaml

    # A copy through JSON shares no values, so that the YAML has no anchors.
    copies = json.loads(json.dumps(bodies))
    # PyYAML's own dumper takes seconds for the manifests of a suite.
    dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    yaml.dump_all(copies, sys.stdout, dumper, sort_keys=False, explicit_start=True)


def _tree(root: ArtifactStatus, title: str) -> Tree:
    tree = Tree(escape(title))
    shown: set[str] = set()

    def add(parent: Tree, status: ArtifactStatus) -> None:
        branch = parent.add(_line(status, status.spec.name))
        if status.spec.fingerprint in shown:
            return
        shown.add(status.spec.fingerprint)
        _add_reasons(branch, status)
        _add_partitions(branch, [s for s in status.inputs if is_partition(s)])
        for upstream in _lifted(status):
            add(branch, upstream)

    for end in root.inputs:
        add(tree, end)
    return tree


def _lifted(status: ArtifactStatus) -> list[ArtifactStatus]:
    """Inputs to show below an artifact: instead of partitions, which are summed up, what those are made of."""
    found: dict[str, ArtifactStatus] = {}

    def visit(node: ArtifactStatus) -> None:
        for upstream in node.inputs:
            if is_partition(upstream):
                visit(upstream)
            else:
                found[upstream.spec.fingerprint] = upstream

    visit(status)
    return list(found.values())


def _add_partitions(branch: Tree, partitions: list[ArtifactStatus]) -> None:
    if not partitions:
        return
    missing = [one for one in partitions if one.state is not State.COMMITTED]
    name = partitions[0].spec.name
    node = branch.add(f"{len(partitions) - len(missing)} of {len(partitions)} partitions of {name} committed")
    for one in missing:
        _add_reasons(node.add(_line(one, str(one.spec.partition))), one)


def _line(status: ArtifactStatus, name: str) -> str:
    mark, colour = _MARKS[status.state]
    return f"[{colour}]{mark} {status.state.value:9}[/] {escape(name)} [dim]{status.spec.fingerprint}[/]"


def _add_reasons(branch: Tree, status: ArtifactStatus) -> None:
    for reason in status.reasons():
        branch.add(f"because {escape(reason)}", style="magenta")
