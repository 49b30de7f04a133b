"""`marin verdict`: what people make of an experiment."""

import json
import shlex
import sys
from typing import Any

import click
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from marin_core.cli.naming import Artifacts
from marin_core.cli.printing import minute, wide_console
from marin_core.cli.words import one_line, plain
from marin_core.errors import MarinError
from marin_core.records.experiment import Experiment, Verdict
from marin_core.records.verdicts import Ruling, record_ruling, ruling_of, rulings
from marin_core.store.record import user_name

_HELD = {True: "[green]held[/]", False: "[red]did not hold[/]", None: "[dim]not known yet[/]"}
SITE = "records/site"


@click.command()
@click.argument("experiment", required=False)
@click.argument("verdict", required=False)
@click.argument("conclusion", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def verdict(
    experiment: str | None, verdict: str | None, conclusion: str | None, as_json: bool, profile: str | None
) -> None:
    """Say what you make of an EXPERIMENT: a VERDICT (worked, promising, mixed, "did not work", "not evaluated",
    "in progress") and a CONCLUSION in one line. Earlier verdicts stay in the store, and the latest counts.

    With EXPERIMENT alone its verdicts, with nothing all experiments.

    \b
    --json: what was said now, {experiment, verdict, conclusion, said, by};
    of one experiment, what counts with {title, forecast_held, in_file, "history": [what was said, oldest first]};
    of all, a list of what counts with {title, forecast_held}.
    """
    artifacts = Artifacts.of(profile)
    if experiment is None:
        _show_all(artifacts, as_json)
        return
    chosen = _experiment(artifacts, experiment)
    if verdict is None:
        _show(artifacts, chosen, as_json)
    elif conclusion is None or not one_line(conclusion):
        raise click.UsageError("a verdict has a conclusion in one line; give it as the third argument, in quotes")
    else:
        _say(artifacts, chosen, _verdict(verdict), one_line(conclusion), as_json)


def _experiment(artifacts: Artifacts, id_: str) -> Experiment:
    known = {experiment.id: experiment for experiment in artifacts.graph.declared}
    if id_ not in known:
        raise MarinError(f"no experiment {id_!r}; there are {', '.join(known)}")
    return known[id_]


def _verdict(words: str) -> Verdict:
    """A verdict, with spaces, dashes or underscores."""
    said = plain(words)
    known = [one.value for one in Verdict]
    if said not in known:
        raise MarinError(f"no verdict {words!r}; there are {', '.join(known)}")
    return Verdict(said)


def _say(artifacts: Artifacts, experiment: Experiment, verdict: Verdict, conclusion: str, as_json: bool) -> None:
    command = shlex.join(["marin", *sys.argv[1:]])
    record_ruling(artifacts.store, experiment.id, verdict, conclusion, user_name(), command)
    if as_json:
        click.echo(json.dumps(ruling_of(artifacts.store, experiment).to_json(), indent=2))
        return
    shown = [f"experiments/{experiment.id}/retrospective", SITE]
    click.echo(f"{experiment.id}: {verdict.value}. {conclusion}")
    click.echo(f"{' and '.join(shown)} will say so when they are built next:")
    click.echo(f"  dagster asset materialize --select {shlex.quote(','.join(shown))}")


def _show(artifacts: Artifacts, experiment: Experiment, as_json: bool) -> None:
    said = rulings(artifacts.store, experiment.id)
    held = forecast_held(artifacts, experiment)
    in_file = Ruling(experiment.id, experiment.verdict, experiment.conclusion)
    if as_json:
        told = {**_row(artifacts, experiment), "in_file": in_file.to_json(), "history": [one.to_json() for one in said]}
        click.echo(json.dumps(told, indent=2))
        return
    console = wide_console()
    console.print(f"[bold]{escape(experiment.id)}[/]: {escape(experiment.title)}")
    console.print(f"  its forecast: {_HELD[held]}. {escape(experiment.forecast.sentence())}")
    for position, ruling in enumerate(reversed(said)):
        mark = "" if position else " [dim](counts)[/]"
        who = f"{minute(str(ruling.said))} UTC {escape(str(ruling.by))}"
        console.print(f"  {who}: {_line(ruling)}{mark}", soft_wrap=True)
    mark = "" if said else " [dim](counts)[/]"
    console.print(f"  in the experiment's file: {_line(in_file)}{mark}", soft_wrap=True)


def _show_all(artifacts: Artifacts, as_json: bool) -> None:
    rows = [_row(artifacts, experiment) for experiment in artifacts.graph.declared]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("experiment", "verdict", "forecast", "conclusion", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.columns[0].no_wrap = True
    for row in rows:
        held, conclusion = _HELD[row["forecast_held"]], escape(row["conclusion"])
        table.add_row(row["experiment"], row["verdict"], held, conclusion)
    wide_console().print(table)


def _row(artifacts: Artifacts, experiment: Experiment) -> dict[str, Any]:
    ruling = ruling_of(artifacts.store, experiment)
    held = forecast_held(artifacts, experiment)
    return {**ruling.to_json(), "title": experiment.title, "forecast_held": held}


def forecast_held(artifacts: Artifacts, experiment: Experiment) -> bool | None:
    """Whether the forecast held in the result that the store has; None if it has none."""
    result = artifacts.graph.experiments[experiment.id].result
    current = result and artifacts.store.record(result.name, result.fingerprint)
    earlier = artifacts.store.records(f"experiments/{experiment.id}/result") if current is None else []
    record = current or (earlier[-1] if earlier else None)
    return record.summary.get("forecast_held") if record else None


def _line(ruling: Ruling) -> str:
    said = f" {ruling.conclusion}" if ruling.conclusion else ""
    return f"[bold]{ruling.verdict.value}[/].{escape(said)}"
