"""`marin diff`: two runs side by side."""

import json
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from marin_core.cli.naming import Artifacts
from marin_core.cli.printing import value_text, wide_console
from marin_core.cli.runs import Runs
from marin_core.records.lookup import finder
from marin_core.records.side_by_side import Row, Side, SideBySide, side_by_side

_TITLES = {
    "config": "settings",
    "data": "data",
    "code": "code",
    "outcome": "outcome",
}


@click.command()
@click.argument("first", metavar="RUN_A")
@click.argument("second", metavar="RUN_B")
@click.option("--all", "everything", is_flag=True, help="Show what is equal too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def diff(first: str, second: str, everything: bool, as_json: bool, profile: str | None) -> None:
    """Two runs side by side: settings, data, code and outcome, where they differ.

    A run is a partition (8e9-d0024), an asset (delphi/verdict), a build of one (checkpoints/delphi@09181c2d), or a
    record that `marin records` lists, also of a run that failed.

    \b
    --json: {"first": {label, name, partition, fingerprint, committed, record}, "second": …,
             "config": [{field, first, second}], "data": […], "code": […], "outcome": […]}
    """
    artifacts = Artifacts.of(profile)
    runs = Runs(artifacts)
    one, other = runs.side(first), runs.side(second)
    found = side_by_side(one, other, finder(artifacts.store, one.made, other.made))
    if as_json:
        click.echo(json.dumps(found.to_json(everything=everything), indent=2))
        return
    _print(wide_console(), found, everything)


def _print(console: Console, found: SideBySide, everything: bool) -> None:
    for side in (found.first, found.second):
        console.print(_what(side))
    for section, rows in found.sections.items():
        shown = [row for row in rows if everything or row.differs]
        if not shown:
            console.print(f"[dim]{_TITLES[section]}: no difference[/]")
            continue
        console.print(_table(_TITLES[section], found, shown))


def _what(side: Side) -> str:
    """What a side is, in one line."""
    told = side.to_json()
    partition = f" [{told['partition']}]" if told["partition"] else ""
    name = escape(f"{told['name']}{partition}")
    state = "" if told["committed"] else " [yellow]not committed[/]"
    unknown = "" if side.made else ", of which no plan is left"
    record = f" [dim]record {told['record']}[/]" if told["record"] else ""
    return f"[bold]{escape(side.label)}[/]: {name} [dim]{told['fingerprint'] or ''}[/]{state}{unknown}{record}"


def _table(title: str, found: SideBySide, rows: list[Row]) -> Table:
    first, second = (escape(side.label) for side in (found.first, found.second))
    table = Table(title, first, second, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.columns[0].no_wrap = True
    for row in rows:
        style = None if row.differs else "dim"
        table.add_row(escape(row.field), _cell(row.first), _cell(row.second), style=style)
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "[dim]–[/]"
    return escape(value_text(value) if isinstance(value, str | float) else json.dumps(value, ensure_ascii=False))
