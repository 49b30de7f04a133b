"""Outcomes shown to people: as a list, and one with all that is known of it."""

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from marin_core.cli.printing import minute, value_text, wide_console
from marin_core.records.correction import said
from marin_core.records.outcome import Outcome
from marin_core.store import Store

_COLOURS = {"succeeded": "green", "failed": "red", "cancelled": "yellow"}


def print_list(found: list[Outcome], limit: int, valid: set[str]) -> None:
    """The first `limit`; those that are not in `valid` are marked as corrected."""
    console = wide_console()
    if not found:
        console.print("no records")
        return
    titles = ("record", "ended (UTC)", "what", "came to", "reason")
    table = Table(*titles, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns[:3]:
        column.no_wrap = True
    for outcome in found[:limit]:
        mark = "" if outcome.record in valid else " [dim]corrected[/]"
        came_to = f"[{_COLOURS[outcome.status]}]{escape(state(outcome))}[/]{mark}"
        note = f" (correction: {outcome.note})" if outcome.corrects else ""
        table.add_row(
            outcome.record, minute(outcome.ended), escape(outcome.label), came_to, escape(outcome.cause + note)
        )
    console.print(table)
    if len(found) > limit:
        console.print(f"{len(found) - limit} more; --limit {len(found)} shows all")


def print_one(store: Store, outcome: Outcome, chain: list[Outcome]) -> None:
    """All fields, the last log lines, and the `chain` of corrections that it belongs to."""
    console = wide_console()
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in outcome.to_json().items():
        if value not in (None, "", []) and name != "log_tail":
            table.add_row(f"[cyan]{name}[/]", escape(value_text(value)))
    console.print(table)
    if outcome.log_tail:
        console.print("[cyan]last log lines[/]")
        for line in outcome.log_tail:
            console.print(f"  {escape(line)}", soft_wrap=True)
    if len(chain) > 1:
        console.print("[cyan]corrections[/], oldest first")
        for one in chain:
            made = said(store, one)
            who = f" by {made.user} at {minute(made.ended)}" if made else ""
            mark = " (this)" if one == outcome else ""
            console.print(escape(f"  {one.record}{mark}: {state(one)}{who}{f': {one.note}' if one.note else ''}"))


def state(outcome: Outcome) -> str:
    """The status, with the class where that says more."""
    if outcome.exit_class is None or outcome.exit_class.value == outcome.status:
        return outcome.status
    return f"{outcome.status}: {outcome.exit_class.value}"
