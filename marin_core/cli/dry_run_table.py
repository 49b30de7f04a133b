"""A dry run for people: a line per job, the totals, and what the figures rest on."""

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from marin_core.cli.dry_run import DryRun
from marin_core.jobs.estimate import JobEstimate

_COLUMNS = ("artifact", "pool", "chips", "HBM GiB/chip", "tokens", "FLOPs", "hours", "chip-hours", "cost")


def print_dry_run(found: DryRun, console: Console) -> None:
    place = found.profile.place
    console.print(f"profile {escape(found.profile.name)}, store {escape(place.store)}: nothing is submitted")
    if found.unreachable:
        console.print(f"[magenta]everything counts as missing: {escape(found.unreachable)}[/]")
    if not found.all_estimates:
        console.print("nothing is missing: no job would be submitted")
        return
    console.print(_table(found))
    for note in _notes(found):
        console.print(escape(note))


def _table(found: DryRun) -> Table:
    table = Table(*_COLUMNS, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    for one in found.all_estimates:
        figures = [_count(one.tokens), _count(one.flops), _hours(one.hours), _hours(one.chip_hours), _dollars(one.cost)]
        table.add_row(escape(one.artifact), one.pool, str(one.chips), _hbm(one), *figures)
    totals = found.totals()
    sums = [_count(totals["tokens"]), _count(totals["flops"]), _hours(totals["hours"]), _hours(totals["chip_hours"])]
    table.add_section()
    jobs = f"{totals['jobs']} jobs, {totals['runs']} of them training"
    table.add_row(jobs, "", str(totals["chips_at_once"]), "", *sums, _dollars(totals["cost"]))
    for column in table.columns[2:]:
        column.justify = "right"
    return table


def _notes(found: DryRun) -> list[str]:
    place = found.profile.place
    estimates = found.all_estimates
    notes = [
        "hours are training's at a model FLOPs utilization of "
        f"{place.assumed_mfu:g} (assumed_mfu), in total if all runs of the suite train at once and the held-out runs "
        "after them; waiting, data stages and evaluations are not in them"
    ]
    if any(e.hbm_gib_needed is not None for e in estimates):
        notes.append("HBM is what a run cannot do without / what the published launches reserve / what the chip has")
    if any(e.is_tight for e in estimates):
        notes.append("! the published launches would have taken a larger slice; whether it fits shows when it starts")
    if found.heldout and not found.heldout_jobs:
        by_law = all(one.plan is not None for one in found.heldout)
        basis = "by the models that the published law chooses" if by_law else "by their budgets alone"
        notes.append(f"held-out runs: not known before the forecast, estimated {basis}")
    if unpriced := sorted({p.family for e in estimates if e.flops and e.cost is None for p in e.pools[:1]}):
        notes.append(f"no cost for {', '.join(unpriced)}: peak FLOP/s or a price in [place.prices] is missing")
    return notes


def _hbm(one: JobEstimate) -> str:
    if one.hbm_gib_needed is None or one.hbm_gib_reserved is None:
        return ""
    mark = "!" if one.is_tight else ""
    return f"{one.hbm_gib_needed:.1f} / {one.hbm_gib_reserved:.1f}{mark} / {one.hbm_gib_available:g}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _hours(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _dollars(value: float | None) -> str:
    return "" if value is None else f"${value:,.2f}"
