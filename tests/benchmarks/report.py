"""Comparisons as tables for people and as JSON."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from comparison import Comparison
from rich.console import Console
from rich.table import Table

VERSIONS = ("datatrove", "duckdb", "gigatoken", "marin-levanter", "polars", "pyarrow", "rensa", "tokenizers")


def show(comparison: Comparison, console: Console) -> None:
    console.print(measurements(comparison))
    if comparison.figures:
        console.print(figures(comparison))
    for label, note in comparison.notes.items():
        console.print(f"  {label}: {note}", highlight=False)
    console.print(goals(comparison))


def measurements(comparison: Comparison) -> Table:
    columns = ("", "cores", "MB", "documents", "CPU s", "MB per CPU s", "MB per s", "peak MB")
    table = Table(*columns, title=comparison.title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for (label, cores), found in comparison.measured.items():
        counts = (f"{found.megabytes:.1f}", f"{found.documents:,}", f"{found.cpu_s:.2f}")
        rates = (f"{found.per_cpu_second:.2f}", f"{found.per_second:.2f}")
        table.add_row(label, str(cores), *counts, *rates, f"{found.rss_mb:,.0f}")
    return table


def figures(comparison: Comparison) -> Table:
    table = Table("", *next(iter(comparison.figures.values())))
    for column in table.columns[1:]:
        column.justify = "right"
    for label, values in comparison.figures.items():
        table.add_row(label, *(f"{value:,.0f}" if value >= 100 else f"{value:.3f}" for value in values.values()))
    return table


def goals(comparison: Comparison) -> Table:
    table = Table("goal", "found", "two cores, wall", "wanted", "", title_justify="left")
    for goal in comparison.goals:
        two = "" if goal.two_cores is None else f"{goal.two_cores:.3g}"
        wanted = f"{'≤' if goal.at_most else '≥'} {goal.wanted:g}"
        verdict = "[green]reached[/]" if goal.reached else "[red]not reached[/]"
        table.add_row(goal.what, f"{goal.found:.3g}", two, wanted, verdict)
    return table


def as_json(comparisons: list[Comparison]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "comparisons": {
            comparison.title: {
                "measurements": [
                    {"label": label, **vars(found), "mb_per_cpu_s": found.per_cpu_second, "mb_per_s": found.per_second}
                    for (label, _), found in comparison.measured.items()
                ],
                "figures": comparison.figures,
                "notes": comparison.notes,
                "goals": [{**vars(goal), "reached": goal.reached} for goal in comparison.goals],
            }
            for comparison in comparisons
        },
    }


def machine() -> dict[str, Any]:
    models = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in VERSIONS},
    }
