"""`marin records`: what runs came to, failures included."""

import json
import shlex
import sys
from datetime import UTC, datetime

import click
from click.core import ParameterSource

from marin_core.cli.naming import by_prefix
from marin_core.cli.records_view import print_list, print_one, state
from marin_core.cli.words import Words, one_line
from marin_core.errors import MarinError
from marin_core.profile import load_profile
from marin_core.records.correction import STATUSES, correction, history, said
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import read_outcomes, record_correction, valid_outcomes
from marin_core.records.selection import Selection, parse_since
from marin_core.store import Store

_SHOWN = 30
_CLASSES = Words([one.value for one in ExitClass])
_PROFILE = click.option(
    "--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]"
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@click.option("--failed", is_flag=True, help="Only what did not succeed.")
@click.option("--class", "exit_class", type=_CLASSES, help="Only what ended for this reason.")
@click.option("--since", metavar="TIME", help="Only what ended since: an age like 7d or 12h, or 2026-11-01 (UTC).")
@click.option("--asset", metavar="GLOB", help="Only these assets: checkpoints/delphi, 'raw/*'.")
@click.option("--partition", help="Only this partition.")
@click.option("--run", metavar="DAGSTER_RUN", help="Only what this Dagster run did; the beginning of its id is enough.")
@click.option("--history", "with_history", is_flag=True, help="Show corrected records too.")
@click.option("--limit", type=click.IntRange(1), help=f"At most so many. [default: {_SHOWN}; with --json: all]")
@_JSON
@_PROFILE
@click.pass_context
def records(
    context: click.Context,
    failed: bool,
    exit_class: str | None,
    since: str | None,
    asset: str | None,
    partition: str | None,
    run: str | None,
    with_history: bool,
    limit: int | None,
    as_json: bool,
    profile: str | None,
) -> None:
    """What runs came to, newest first, failures with their reason.

    \b
    --json: a list of {record, dagster_run, asset, partition, status, began, ended, fingerprint, exit_class, reason,
    last_step, steps, loss, log_tail, commit, dirty, command, user, host, profile, pool, wandb_url, chip_hours,
    preemptions, failures, corrects, note}; times in UTC, loss in nats per token.
    """
    context.obj = profile
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    selection = Selection(
        failed=failed,
        exit_class=ExitClass(exit_class) if exit_class else None,
        since=parse_since(since, datetime.now(UTC)) if since else None,
        asset=asset,
        partition=partition,
        run=run,
    )
    outcomes = read_outcomes(_store(profile))
    valid = valid_outcomes(outcomes)
    found = selection.of(outcomes if with_history else valid)
    if as_json:
        click.echo(json.dumps([outcome.to_json() for outcome in found[:limit]], indent=2))
    else:
        print_list(found, limit or _SHOWN, {outcome.record for outcome in valid})


@records.command()
@click.argument("record")
@_JSON
@_PROFILE
def show(record: str, as_json: bool, profile: str | None) -> None:
    """Everything about a RECORD, with its last log lines and its corrections. The beginning of its id is enough.

    \b
    --json: the record as in the list, and "history": the records that correct each other, oldest first, each
    {record, status, exit_class, reason, note, said, by}.
    """
    store = _store(profile)
    outcomes = read_outcomes(store)
    outcome = _named(outcomes, record)
    chain = history(outcomes, outcome)
    if as_json:
        click.echo(json.dumps({**outcome.to_json(), "history": [_told(store, one) for one in chain]}, indent=2))
    else:
        print_one(store, outcome, chain)


@records.command()
@click.argument("record")
@click.option("--class", "exit_class", type=_CLASSES, help="Why it really ended.")
@click.option("--status", type=click.Choice(STATUSES), help="What it really came to. [default: as the class implies]")
@click.option("--reason", help="The reason in a line. [default: as it was]")
@click.option("--note", required=True, help="Why the record is corrected.")
@_JSON
@_PROFILE
def correct(
    record: str,
    exit_class: str | None,
    status: str | None,
    reason: str | None,
    note: str,
    as_json: bool,
    profile: str | None,
) -> None:
    """Correct a RECORD with a new one that stands in its place. The old one stays, and `--history` shows it.

    \b
    --json: the new record as in the list.
    """
    if not one_line(note):
        raise click.UsageError("a correction says why; give --note in words")
    store = _store(profile)
    outcomes = read_outcomes(store)
    wrong = _named(outcomes, record)
    if (last := history(outcomes, wrong)[-1]) != wrong:
        raise MarinError(f"record {wrong.record} is corrected already by {last.record}; correct that one")
    chosen = ExitClass(exit_class) if exit_class else None
    said_reason = None if reason is None else one_line(reason)
    right = correction(wrong, exit_class=chosen, status=status, reason=said_reason, note=one_line(note))
    record_correction(store, right, command=_command())
    if as_json:
        click.echo(json.dumps(right.to_json(), indent=2))
    else:
        click.echo(f"record {right.record} stands in the place of {wrong.record}: {right.label} {state(right)}")


def _refuse_options(context: click.Context, subcommand: str) -> None:
    """A subcommand would leave out unsaid what chooses from the list."""
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if chosen := [name for name in given if name != "profile"]:
        option = next(one for one in context.command.params if one.name == chosen[0])
        raise click.UsageError(f"{option.opts[0]} is for the list; give it after {subcommand}, if that has it")


def _store(profile: str | None) -> Store:
    """The store of a profile, which may also be named before the subcommand."""
    return Store(load_profile(profile or click.get_current_context().obj).place.store)


def _command() -> str:
    """What a person typed, as the correction's provenance keeps it."""
    return shlex.join(["marin", *sys.argv[1:]])


def _named(outcomes: list[Outcome], prefix: str) -> Outcome:
    by_record = {outcome.record: outcome for outcome in outcomes}
    return by_record[by_prefix(by_record, prefix, "record")]


def _told(store: Store, outcome: Outcome) -> dict[str, str | None]:
    """A record in a history. `said` and `by` are those of a correction."""
    made = said(store, outcome)
    return {
        "record": outcome.record,
        "status": outcome.status,
        "exit_class": outcome.exit_class.value if outcome.exit_class else None,
        "reason": outcome.reason,
        "note": outcome.note,
        "said": made.ended if made else None,
        "by": made.user if made else None,
    }
