"""`marin why`: why an asset would be built again, or why not."""

import json

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from marin_core.cli.causes import cause_lines
from marin_core.cli.naming import Artifacts
from marin_core.cli.printing import commit_text, minute, wide_console
from marin_core.records.outcome import Outcome
from marin_core.records.outcomes import read_outcomes, valid_outcomes
from marin_core.status import ArtifactStatus, Explanation, State, explain
from marin_core.store import Store

_COLOURS = {State.COMMITTED: "green", State.MISSING: "yellow", State.STALE: "magenta"}
# Names of one line, and failures that are told.
_SHOWN = 8


@click.command()
@click.argument("asset")
@click.option("--partition", help="Which partition, like 4e11-d0024. [default: all, of an asset that has some]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def why(asset: str, partition: str | None, as_json: bool, profile: str | None) -> None:
    """Why ASSET would be built again, or why not: followed through changed inputs down to the fields that changed; and
    what building it would involve.

    \b
    --json: {name, "artifacts": [{partition, fingerprint, state}], "never_built": [fingerprint],
             "changes": [{name, field, "values": [{partition, old, new}], "through": [{name, count}]}],
             "rebuilt": [{partition, role, name, fingerprint, built, commit}], "retried": [fingerprint],
             "attempts": [{partition, began}], "failures": [record], "to_build": [{name, partition, state}],
             training_runs, "upstream_not_committed": [{name, partition, state}]}
    """
    artifacts = Artifacts.of(profile)
    found = explain(artifacts.specs(asset, partition), artifacts.graph, artifacts.store)
    failures = _failures(found, artifacts.store)
    if as_json:
        failed = [outcome.record for outcome in failures]
        click.echo(json.dumps({**found.to_json(), "failures": failed}, indent=2))
        return
    _print(wide_console(), found, failures)


def _failures(found: Explanation, store: Store) -> list[Outcome]:
    """What was recorded of tries to build what is missing, newest first."""
    missing = {status.spec.fingerprint for status in found.statuses if status.state is not State.COMMITTED}
    if not missing:
        return []
    outcomes = valid_outcomes(read_outcomes(store))
    return [o for o in reversed(outcomes) if o.fingerprint in missing and o.status != "succeeded"]


def _print(console: Console, found: Explanation, failures: list[Outcome]) -> None:
    console.print(_headline(found))

    def tell(line: str, level: int = 1) -> None:
        console.print(Padding(line, (0, 0, 0, 2 * level), expand=False))

    for line, level in cause_lines(found):
        tell(line, level)
    for status in found.never_built[:1]:
        tell(_never_built(found, status))
    for partition, began in found.attempts.items():
        of = f" of {partition}" if partition and len(found.statuses) > 1 else ""
        tell(f"a build{of} began at {minute(began)} UTC and has not ended")
    for outcome in failures[:_SHOWN]:
        tell(_failure(outcome))
    if found.upstream:
        tell(f"but of what it is made of, {_names(found.upstream)} would be built again;")
        tell(f"if that comes out different, so must {found.name}")
    if found.changes:
        *others, last = found.compared
        made = last.provenance
        more = f" and {len(others)} more" if others else ""
        built = f"{last.fingerprint}{more}, built {minute(made.ended)} UTC, {commit_text(made.commit)}"
        tell(f"[dim]compared with {built}[/]")
    if found.to_build:
        _print_work(console, found)


def _headline(found: Explanation) -> str:
    if len(found.statuses) == 1:
        (status,) = found.statuses
        line = f"[bold]{escape(status.spec.label)}[/] is [{_COLOURS[status.state]}]{status.state.value}[/]"
        if status.state is not State.COMMITTED:
            return line
        record = found.committed[0]
        ended = record.summary.get("status", "succeeded")
        but = "" if ended == "succeeded" else f", and says itself that the run {ended}"
        built = f"built {minute(record.provenance.ended)} UTC, {commit_text(record.provenance.commit)}"
        return f"{line}: {built}, fingerprint {record.fingerprint}{escape(but)}"
    counts = ", ".join(f"{count} [{_COLOURS[state]}]{state.value}[/]" for state, count in found.counts.items())
    return f"[bold]{escape(found.name)}[/], {len(found.statuses)} partitions: {counts}"


def _never_built(found: Explanation, status: ArtifactStatus) -> str:
    if len(found.statuses) == 1:
        return "because it was never built"
    names = [str(one.spec.partition) for one in found.never_built]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"because {', '.join(names[:_SHOWN])}{more} {'was' if len(names) == 1 else 'were'} never built"


def _failure(outcome: Outcome) -> str:
    what = outcome.exit_class.value if outcome.exit_class else outcome.status
    of = f" [{outcome.partition}]" if outcome.partition else ""
    reason = f": {outcome.cause}" if outcome.reason else ""
    return (
        f"[red]tried at {minute(outcome.ended)} UTC{escape(of)}: {what}[/]{escape(reason)} "
        f"[dim](marin records show {outcome.record})[/]"
    )


def _print_work(console: Console, found: Explanation) -> None:
    count = len(found.to_build)
    runs = found.training_runs
    training = f", {runs} training run{'s' if runs != 1 else ''} with it" if runs else ", no training"
    console.print(f"to build it: {count} artifact{'s' if count != 1 else ''}{training}")
    if count > len(found.statuses):
        console.print(f"  {_names(found.to_build)}")


def _names(statuses: tuple[ArtifactStatus, ...]) -> str:
    """Each asset once, with the number of its partitions."""
    counted: dict[str, int] = {}
    for status in statuses:
        counted[status.spec.name] = counted.get(status.spec.name, 0) + 1
    names = [name if count == 1 else f"{name} ({count})" for name, count in counted.items()]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return escape(", ".join(names[:_SHOWN]) + more)
