"""Runs of a budget for people: their shapes and rates in one table, what they need in another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from marin_core.cli.recipe_needs import Hardware, Needs
from marin_core.recipes import Candidate

# Both tables are readable at this width.
_WIDTH = 120


@dataclass(frozen=True)
class Row:
    """One run; `seed` is None where it is nobody's choice."""

    candidate: Candidate
    needs: Needs
    seed: int | None = None


def print_rows(rows: Sequence[Row], hardware: Hardware) -> None:
    found = Console(highlight=False)
    console = found if found.is_terminal else Console(width=_WIDTH, highlight=False)
    console.print(_shapes(rows))
    console.print(_hardware({row.candidate.key: row for row in rows}.values()))
    for note in _notes(rows, hardware):
        console.print(note, markup=False)


def _shapes(rows: Sequence[Row]) -> Table:
    columns = ["run", "layers", "params", "tokens", "batch", "steps", "lr", "adam lr", "epsilon", "beta2"]
    seeded = any(row.seed is not None for row in rows)
    table = _table([*columns, *(["seed"] if seeded else [])])
    for row in rows:
        c, settings = row.candidate, row.candidate.optimizer
        counts = [f"{n:,}" for n in (c.num_layers, c.params, c.tokens, c.batch_size, c.steps)]
        rates = [rate(value) for value in (settings.learning_rate, settings.adam_lr, settings.epsilon)]
        table.add_row(c.key, *counts, *rates, f"{settings.beta2:.4f}", *([str(row.seed)] if seeded else []))
    return table


def _hardware(rows: Iterable[Row]) -> Table:
    table = _table(["run", "HBM GiB", "least", "pool", "chips", "HBM/chip", "of", "TP", "hours", "chip-hours"])
    for row in rows:
        one = row.needs
        memory = [f"{one.hbm_gib:,.1f}", f"{one.least_hbm_gib:,.1f}"]
        if one.pool is None:
            table.add_row(row.candidate.key, *memory, "none", *[""] * 5, hours(one.chip_hours))
            continue
        per_chip = f"{one.hbm_gib_per_chip:.1f}{'!' if one.is_tight else ''}"
        place = [one.pool, f"{one.chips:,}", per_chip, f"{one.hbm_gib_available:g}", str(one.tensor_parallel)]
        table.add_row(row.candidate.key, *memory, *place, hours(one.hours or 0), hours(one.chip_hours))
    return table


def _notes(rows: Sequence[Row], hardware: Hardware) -> list[str]:
    which = f"pool {hardware.pool.name}" if hardware.pool else f"the smallest {hardware.family} pool that has it"
    notes = [
        "HBM in GiB as the published launches reserve it, and the least of any run, all chips together; per chip on "
        f"{which}. TP is the tensor-parallel degree; hours at a model FLOPs utilization of {hardware.mfu:g} (--mfu)."
    ]
    if any(row.needs.is_tight for row in rows):
        notes.append("! The published launches would have taken a larger pool; whether it fits shows when it starts.")
    if any(row.needs.pool is None for row in rows):
        notes.append(f"none: {no_pool(hardware)}")
    return notes


def no_pool(hardware: Hardware) -> str:
    """Why a run has no pool."""
    if hardware.pool is not None:
        return f"The chips of {hardware.pool.name} cannot share the batch."
    return f"No {hardware.family} pool has the memory and can share the batch; another may, see --family."


def rate(value: float) -> str:
    """Four significant digits: 2.760e-03."""
    return f"{value:.3e}"


def hours(value: float) -> str:
    """Hours to three digits, 23.6 or 1,234."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(columns: Sequence[str]) -> Table:
    table = Table(*columns, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table
