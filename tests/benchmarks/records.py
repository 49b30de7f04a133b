"""What ten thousand partitions and a hundred thousand outcome records cost: loading, recording, reading, the site.

    deploy/run python tests/benchmarks/records.py [--partitions 10000] [--records 100000]

1. definitions: loading Dagster's definitions, and the fingerprints of all that a lab makes, over the laptop's.
2. outcomes: recording one more run, reading all of them, both before and after they are put in one table.
3. site: building it, its pages and bytes, and how long Chromium takes to open the largest of each kind.

Each measurement runs in a process of its own; imports are not counted. The runs are not trained: their records, plans
and loss curves are written through the store's writer. The data before them are real. Takes some eight minutes and some
5 GB in the temporary folder.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import Clock, Measurement, measure
from rich.console import Console
from rich.table import Table

from marin_core.environment import repository

# Pages of the site of which the largest is opened, by where they lie.
KINDS = {
    "index": "index.html",
    "records": "records/**/*.html",
    "experiments": "experiments/**/*.html",
    "artifacts": "artifacts/**/*.html",
    "datasets": "datasets/**/*.html",
    "lineage": "lineage.html",
}


def definitions(clock: Clock, profile: str) -> dict[str, Any]:
    """What every `dagster` command waits for, once Dagster itself is imported."""
    import dagster  # noqa: F401

    os.environ["MARIN_PROFILE"] = profile
    with clock:
        from marin_assets.definitions import defs
    return {"assets": len(list(defs.resolve_asset_graph().get_all_asset_keys()))}


def fingerprints(clock: Clock, profile: str) -> dict[str, Any]:
    from marin_core.graph import LabGraph
    from marin_core.profile import load_profile

    loaded = load_profile(profile)
    with clock:
        graph = LabGraph.of(loaded)
        found = [spec.fingerprint for spec in (*graph.cells.values(), *graph.unpartitioned())]
    return {"cells": len(graph.cells), "artifacts": len(found)}


def record_one(clock: Clock, profile: str, number: int) -> dict[str, Any]:
    from large_lab import one_run

    from marin_core.graph import LabGraph
    from marin_core.profile import load_profile
    from marin_core.records.outcomes import record_run
    from marin_core.store import Store

    loaded = load_profile(profile)
    store, outcomes = Store(loaded.place.store), one_run(list(LabGraph.of(loaded).cells.values()), number)
    with clock:
        record_run(store, outcomes[0].dagster_run, outcomes)
    return {"records": len(outcomes)}


def read(clock: Clock, root: str) -> dict[str, Any]:
    from marin_core.records.outcomes import read_outcomes
    from marin_core.store import Store

    with clock:
        outcomes = read_outcomes(Store(root))
    return {"records": len(outcomes)}


def compact(clock: Clock, root: str) -> dict[str, Any]:
    from marin_core.records.outcomes import commit_table
    from marin_core.store import Store

    with clock:
        table = commit_table(Store(root))
    return {"records": table.summary["records"]}


def gather_site(clock: Clock, root: str) -> dict[str, Any]:
    from marin_core.records.site.content import gather
    from marin_core.store import Store

    with clock:
        content = gather(Store(root), "Benchmark")
    return {"artifacts": len(content.artifacts), "failed": len(content.failed)}


def build(clock: Clock, root: str, folder: str) -> dict[str, Any]:
    from marin_core.records.site.build import build_site
    from marin_core.records.site.content import gather
    from marin_core.store import Store

    def write(path: str, data: bytes) -> None:
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    store = Store(root)
    content = gather(store, "Benchmark")
    with clock:
        return build_site(content, store, write)


def opened(site: Path) -> dict[str, tuple[Path, float]]:
    """By kind of page the largest one and the median milliseconds, of three, from its address to its load event."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    largest = {}
    for kind, pattern in KINDS.items():
        if found := list(site.glob(pattern)):
            largest[kind] = max(found, key=lambda file: file.stat().st_size)
    times = defaultdict(list)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(3):
            for kind, file in largest.items():
                page = browser.new_page()
                began = time.perf_counter()
                page.goto(file.as_uri(), wait_until="load")
                times[kind].append((time.perf_counter() - began) * 1000)
                page.close()
        browser.close()
    return {kind: (file, statistics.median(times[kind])) for kind, file in largest.items()}


def one(method: str, **arguments: Any) -> Measurement:
    return measure(f"records:{method}", Path(sys.executable), (0, 0), **arguments)


def median(method: str, rounds: int = 3, **arguments: Any) -> Measurement:
    return sorted((one(method, **arguments) for _ in range(rounds)), key=lambda m: m.wall_s)[rounds // 2]


def cells_of(measured: Measurement) -> tuple[str, str, str]:
    return f"{measured.wall_s:.3f}", f"{measured.cpu_s:.3f}", f"{measured.rss_mb:.0f}"


def of_definitions(profiles: dict[str, str]) -> Table:
    """`profiles` by the number of their cells; the first is the laptop's."""
    table = Table("", "cells", "wall s", "CPU s", "peak MB", "× laptop", title="definitions")
    for method in ("definitions", "fingerprints"):
        laptop = None
        for cells, profile in profiles.items():
            found = median(method, profile=profile)
            laptop = laptop or found
            table.add_row(method, cells, *cells_of(found), f"{found.wall_s / laptop.wall_s:.2f}")
    return table


def of_outcomes(root: str, profile: str, runs: int) -> Table:
    table = Table("", "records", "wall s", "CPU s", "peak MB", title="outcomes")

    def add(what: str, found: Measurement) -> None:
        table.add_row(what, f"{found.facts.get('records', ''):,}", *cells_of(found))

    add("one more run recorded", one("record_one", profile=profile, number=runs))
    add("all read, a file for each run", median("read", root=root))
    add("put in one table", one("compact", root=root))
    add("all read, one table", median("read", root=root))
    add("one more run recorded", one("record_one", profile=profile, number=runs + 1))
    add("all read, one table and one file", median("read", root=root))
    return table


def of_site(root: str, folder: Path) -> list[Table]:
    gathered, built = one("gather_site", root=root), one("build", root=root, folder=str(folder))
    table = Table("", "wall s", "CPU s", "peak MB", "", title="site")
    table.add_row("everything read", *cells_of(gathered), f"{gathered.facts['artifacts']:,} artifacts")
    facts = built.facts
    table.add_row("built", *cells_of(built), f"{facts['pages']:,} pages, {facts['bytes'] / 1e6:,.0f} MB in all")
    pages = Table("page", "kB", "ms to its load event", title="the largest page of each kind, in Chromium")
    for file, milliseconds in opened(folder).values():
        pages.add_row(str(file.relative_to(folder)), f"{file.stat().st_size / 1e3:,.0f}", f"{milliseconds:,.0f}")
    return [table, pages]


def prepare(folder: Path, profile: str, records: int, say: Callable[[str], None]) -> str:
    """A store with the data, the runs, the suite and the outcomes of a profile; returns its root."""
    from large_lab import commit_experiment, commit_runs, commit_suite, record_outcomes

    from marin_core.graph import LabGraph
    from marin_core.profile import load_profile
    from marin_core.store import Store

    home = folder / "dagster"
    home.mkdir()
    shutil.copy(repository() / "deploy" / "laptop" / "dagster.yaml", home)
    os.environ |= {"DAGSTER_HOME": str(home), "MARIN_STORE": str(folder / "store"), "MARIN_PROFILE": profile}
    os.environ.pop("MARIN_STATE", None)
    for selection in ("mixture/*", "delphi/recipe", "experiments/laptop_ladder/registration"):
        command = ["dagster", "asset", "materialize", "--select", selection]
        subprocess.run(command, cwd=repository(), check=True, capture_output=True)
    store, graph = Store(str(folder / "store")), LabGraph.of(load_profile(profile))
    cells = list(graph.cells.values())
    for what, work in {
        f"{len(cells):,} runs": lambda: commit_runs(store, cells),
        "the suite": lambda: commit_suite(store, graph.suite),
        "an experiment": lambda: commit_experiment(store, graph),
        f"{records:,} outcomes": lambda: record_outcomes(store, cells, records),
    }.items():
        began = time.perf_counter()
        work()
        say(f"{what} written in {time.perf_counter() - began:.0f} s")
    return store.root


def main() -> None:
    from large_lab import OUTCOMES_A_RUN, write_profile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000, help="cells of the ladder, rounded to a square")
    parser.add_argument("--records", type=int, default=100_000, help="outcomes, of fifty to a Dagster run")
    parser.add_argument("--keep", type=Path, help="leave the store and the site in this folder, which must be new")
    options = parser.parse_args()
    console, progress = Console(width=120), Console(stderr=True)
    with contextlib.ExitStack() as stack:
        if options.keep:
            options.keep.mkdir(parents=True)
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        small = write_profile(folder / "small.toml", min(1000, options.partitions))
        large = write_profile(folder / "large.toml", options.partitions)
        profiles = {"22": "laptop", "1,000": str(small), f"{options.partitions:,}": str(large)}
        console.print(of_definitions(profiles))
        root = prepare(folder.resolve(), str(large), options.records, progress.print)
        console.print(of_outcomes(root, str(large), options.records // OUTCOMES_A_RUN))
        for table in of_site(root, folder / "site"):
            console.print(table)


if __name__ == "__main__":
    main()
