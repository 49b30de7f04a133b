"""`marin …`: what a person asks the lab without Dagster. Each command prints for people, or JSON with `--json`."""

import sys
from typing import NoReturn

import click

from marin_core.cli.data import data
from marin_core.cli.diff import diff
from marin_core.cli.gap import evaluation
from marin_core.cli.ladder import ladder
from marin_core.cli.lineage import lineage
from marin_core.cli.plan import plan
from marin_core.cli.pools import pools
from marin_core.cli.recipe import recipe
from marin_core.cli.records import records
from marin_core.cli.verdict import verdict
from marin_core.cli.why import why
from marin_core.errors import MarinError
from marin_core.recipes import RecipeError


@click.group()
def cli() -> None:
    """The lab's questions and answers. Materializing is Dagster's: `dagster asset materialize --select 'delphi/*'`."""


cli.add_command(data)
cli.add_command(diff)
cli.add_command(evaluation)
cli.add_command(ladder)
cli.add_command(lineage)
cli.add_command(plan)
cli.add_command(pools)
cli.add_command(recipe)
cli.add_command(records)
cli.add_command(verdict)
cli.add_command(why)


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
