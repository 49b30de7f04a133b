"""`marin pools`: the hardware that a profile may ask for."""

import json
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from marin_core.errors import MarinError
from marin_core.jobs.pools import Pool, all_pools

_COLUMNS = (
    "pool",
    "family",
    "topology",
    "chips",
    "hosts",
    "chips/host",
    "HBM GiB/chip",
    "bf16 TFLOP/s/chip",
    "machine",
)


@click.command()
@click.option("--family", help="Only pools of this family, like v5p or h100.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with node selectors and sources.")
def pools(family: str | None, as_json: bool) -> None:
    """The hardware that a profile may ask for."""
    found = _of_family(family)
    if as_json:
        click.echo(json.dumps([_json(pool) for pool in found], indent=2))
        return
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    console.print(_table(found))
    console.print(
        "Also: cpu-N, a machine of N cores; KxPOOL, like 4xv6e-256 (four slices) or 2xh100-8 (two machines); "
        "v5e-16 for v5litepod-16."
    )


def _of_family(family: str | None) -> list[Pool]:
    found = [pool for pool in all_pools() if family in (None, pool.family)]
    if not found:
        known = ", ".join(dict.fromkeys(pool.family for pool in all_pools()))
        raise MarinError(f"no pools of family {family!r}; there are {known}")
    return found


def _table(found: list[Pool]) -> Table:
    table = Table(*_COLUMNS, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    for pool in found:
        numbers = [str(pool.chips), str(pool.hosts), str(pool.chips_per_host), f"{pool.hbm_gib:g}"]
        peak = f"{(pool.peak_flops or 0) / 1e12:g}"
        table.add_row(pool.name, pool.family, pool.topology or "", *numbers, peak, pool.machine_type)
    for column in table.columns[3:8]:
        column.justify = "right"
    return table


def _json(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "family": pool.family,
        "kind": pool.kind,
        "topology": pool.topology,
        "chips": pool.chips,
        "hosts": pool.hosts,
        "chips_per_host": pool.chips_per_host,
        "hbm_gib": pool.hbm_gib,
        "peak_flops": pool.peak_flops,
        "machine_type": pool.machine_type,
        "node_selector": dict(pool.node_selector),
        "resource": pool.resource,
        "host_cpus": pool.host_cpus,
        "host_memory_gib": pool.host_memory_gib,
        "sources": list(pool.sources),
    }
