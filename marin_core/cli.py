"""`marin …`: what a person asks the lab without Dagster. Each command prints for people, or JSON with `--json`."""

import json
import sys
from typing import Any, NoReturn

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.recipes import RECIPES, Candidate, RecipeError
from marin_core.status import ArtifactStatus, State, graph_status, is_cell, walk
from marin_core.store import Store

_MARKS = {State.COMMITTED: ("✓", "green"), State.MISSING: ("○", "yellow"), State.STALE: ("↻", "magenta")}


@click.group()
def cli() -> None:
    """The lab's questions and answers. Materializing is Dagster's: `dagster asset materialize --select 'delphi/*'`."""


def main() -> None:
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        sys.exit(130)
    except MarinError as error:
        _fail(error)


def _fail(error: MarinError) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    sys.exit(2 if isinstance(error, RecipeError) else 1)


class Flops(click.ParamType):
    """A budget like 3e18."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of FLOPs; give one like 3e18", param, ctx)


@cli.command()
@click.argument("budget", type=Flops())
@click.option("--recipe", "name", type=click.Choice(sorted(RECIPES)), default="delphi", show_default=True)
@click.option("--optimal", is_flag=True, help="Only the compute-optimal run, by the recipe's published token law.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recipe(budget: float, name: str, optimal: bool, as_json: bool) -> None:
    """The candidate runs of a BUDGET in FLOPs."""
    chosen = RECIPES[name]
    if optimal:
        best = chosen.optimal(budget)
        _print_candidates([best]) if not as_json else click.echo(json.dumps(best.to_json(), indent=2))
    else:
        found = chosen.candidates(budget)
        _print_candidates(found) if not as_json else click.echo(json.dumps([c.to_json() for c in found], indent=2))


@cli.command()
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


def _print_candidates(candidates: list[Candidate]) -> None:
    columns = ("run", "layers", "params", "tokens", "batch", "steps", "lr", "adam lr", "beta2")
    table = Table(*columns, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    for c in candidates:
        sizes = [str(c.num_layers), _short(c.params), _short(c.tokens), str(c.batch_size), str(c.steps)]
        rates = [f"{c.optimizer.learning_rate:.3g}", f"{c.optimizer.adam_lr:.3g}", f"{c.optimizer.beta2:.4g}"]
        table.add_row(c.key, *sizes, *rates)
    for column in table.columns[1:]:
        column.justify = "right"
    Console().print(table)


def _short(count: float) -> str:
    """Four significant digits with the usual letter: 447.2M, 1.223B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{letter}"
    return str(count)
