"""The data plane against what others offer, as ratios measured in one run on the same documents.

    deploy/run python tests/benchmarks/data.py [--only tokenize,filters] [--mb 135] [--json FILE]

1. tokenize: text to a training cache, against datatrove, Levanter and the fast tokenizer alone.
2. filters: quality rules, against datatrove's.
3. fuzzy: near-duplicates, against dupekit and datatrove: speed, recall of planted edits, likeness of what is removed.
4. normalize: raw files to documents without exact duplicates, against a bare pass of polars and of duckdb.
5. memory: the peak of every stage over the corpus and over four times as much.

Each method runs in a process of its own on one core and on two; imports are not counted. Slow methods get a slice of
the documents: rates are MB of text per CPU second, ours with the store's commit. The first run makes the corpus and an
environment with the peers (300 MB of downloads, two minutes); a run takes some seven minutes on two cores.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from comparison import Comparison
from comparisons import COMPARISONS
from documents import write_fourfold
from preparation import prepare
from report import as_json, machine, show
from rich.console import Console

from marin_core.errors import MarinError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(COMPARISONS), help="comparisons, separated by commas")
    parser.add_argument("--mb", type=float, default=135, help="text of the corpus")
    parser.add_argument("--json", type=Path, help="write everything that was measured")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in COMPARISONS]:
        parser.error(f"no comparison {unknown[0]!r}; there are {', '.join(COMPARISONS)}")
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("one core is not enough: methods are measured on one and on two")
    console, progress = Console(width=150), Console(stderr=True)
    prepared = prepare(options.mb, progress.print)
    console.print(f"{machine()['cpu']}, {machine()['cores']} cores, {options.mb:g} MB of text", highlight=False)
    if "memory" in names:
        write_fourfold(prepared.set("documents"))
    done: list[Comparison] = []
    with prepared.copied() as copy:
        for name in names:
            comparison = Comparison(name, copy, progress.print)
            COMPARISONS[name](comparison)
            show(comparison, console)
            done.append(comparison)
            if options.json:
                options.json.write_text(json.dumps(as_json(done), indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except MarinError as error:
        sys.exit(str(error))
