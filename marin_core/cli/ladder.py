"""`marin ladder`: a ladder is the [scale] section of a profile; what is wrong with one, before it is trained."""

import json

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from marin_core import environment
from marin_core.cli.ladder_report import BudgetReport, LadderReport
from marin_core.cli.token_laws import best_known_law
from marin_core.errors import MarinError
from marin_core.profile import load_profile
from marin_core.recipes import format_budget

_MARKS = {"problem": "[red]✗[/]", "warning": "[yellow]![/]"}


@click.group()
def ladder() -> None:
    """Ladders: the budgets and runs that a profile's [scale] section declares."""


@ladder.command()
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(profile: str | None, as_json: bool) -> None:
    """Cells at their limits, optima at a grid's edge, budgets with too few cells. Trains and writes nothing.

    Exits with 1 if there are problems; warnings are no problems.
    """
    asked = profile or environment.profile_name()
    loaded = load_profile(asked, dry=True)
    law, why_not_fitted = best_known_law(loaded, asked)
    report = LadderReport(loaded.name, loaded.scale, law)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report, why_not_fitted)
    if report.problems:
        raise MarinError(f"the ladder of profile {asked} has {report.problems} problems; each says above what to do")


def _print(report: LadderReport, why_not_fitted: str | None) -> None:
    found = Console(highlight=False)
    console = found if found.is_terminal else Console(width=120, highlight=False)
    recipe = report.scale.recipe
    console.print(f"ladder of profile {escape(report.name)}: recipe {recipe.name}, version {recipe.version}")
    console.print(escape(_law_line(report, why_not_fitted)))
    console.print(_table(report))
    for finding in report.findings:
        where = f"{format_budget(finding.budget)}: " if finding.budget is not None else ""
        console.print(f"{_MARKS[finding.kind]} {finding.kind}: {escape(where + finding.text)}")
    if not report.findings:
        console.print("nothing to be found")


def _law_line(report: LadderReport, why_not_fitted: str | None) -> str:
    if report.law is None:
        return f"no token law is known, so optima are not looked at: {why_not_fitted}"
    return f"token law: {report.law.text}, {report.law.source}"


def _table(report: LadderReport) -> Table:
    columns = ("budget", "cells", "widths", "tokens", "batches", "steps", "at limits", "optimal tokens", "optimum")
    table = Table(*columns, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    for one in report.budgets:
        table.add_row(*_row(one))
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _row(one: BudgetReport) -> list[str]:
    ranges = [
        _range([getattr(cell, name) for cell in one.cells]) for name in ("hidden_dim", "tokens", "batch_size", "steps")
    ]
    optimum = ["" if one.best_tokens is None else f"{one.best_tokens:.3g}", one.optimum or ""]
    return [format_budget(one.flops), str(len(one.cells)), *ranges, str(len(one.limits)), *optimum]


def _range(values: list[int]) -> str:
    if not values:
        return ""
    texts = [f"{value:.3g}" if value >= 1e6 else f"{value:,}" for value in (min(values), max(values))]
    return " – ".join(dict.fromkeys(texts))
