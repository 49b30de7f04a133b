"""`marin recipe`: the candidate runs of a budget."""

import json
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from marin_core.recipes import RECIPES, Candidate


class Flops(click.ParamType):
    """A budget like 3e18."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of FLOPs; give one like 3e18", param, ctx)


@click.command()
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
