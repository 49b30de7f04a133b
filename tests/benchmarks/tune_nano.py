"""How the nano recipe's constants were chosen: sweeps of the reference run, one setting at a time.

    deploy/run python tests/benchmarks/tune_nano.py

Trains the reference run (8e11 FLOPs at width 48) for each value on the laptop profile's mixture, which is
materialized first if it is not in the store, and prints one table per setting. About a minute per run.
"""

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from marin_core import environment
from marin_core.build import BuildOptions
from marin_core.graph import LabGraph, train_spec
from marin_core.jobs import JobSpec, LocalLauncher, follow
from marin_core.profile import load_profile
from marin_core.recipes import NANO, ScalingRecipe
from marin_core.store import Store

FLOPS, WIDTH = 8e11, 48
SWEEPS: dict[str, list[float]] = {
    "reference_batch_size": [2, 4, 8, 16],
    "reference_learning_rate": [0.0035, 0.005, 0.007, 0.01, 0.014],
    "reference_adam_lr": [0.025, 0.05, 0.1, 0.2],
    "reference_beta2": [0.95, 0.98, 0.99],
}


def variants(setting: str) -> Iterator[tuple[float, ScalingRecipe]]:
    for value in SWEEPS[setting]:
        typed = int(value) if setting == "reference_batch_size" else value
        hparams = dataclasses.replace(NANO.hparams, **{setting: typed})
        yield value, dataclasses.replace(NANO, name=f"nano-{setting}-{value:g}", hparams=hparams)


def main() -> None:
    subprocess.run(
        ["dagster", "asset", "materialize", "--select", "mixture/*"], check=True, cwd=environment.repository()
    )
    profile = load_profile("laptop")
    store, graph = Store(profile.place.store), LabGraph.of(profile)
    launcher = LocalLauncher(store, environment.state_folder(), BuildOptions(Path(tempfile.gettempdir())))
    console = Console()
    for setting in SWEEPS:
        specs = {}
        for value, recipe in variants(setting):
            candidate = recipe.with_batch_size(recipe.candidate(FLOPS, WIDTH), recipe.hparams.reference_batch_size)
            plan = dataclasses.replace(graph.plan(candidate), recipe=recipe.name)
            specs[value] = train_spec(plan, recipe.name, graph.mixture)
        missing = [spec for spec in specs.values() if store.current(spec) is None]
        follow(
            [launcher.submit(JobSpec(spec, profile.place.suite_pools)) for spec in missing], lambda job, status: None
        )
        table = Table(setting, "steps", "validation loss", title=f"{FLOPS:g} FLOPs, width {WIDTH}")
        for value, spec in specs.items():
            summary = store.artifact(spec).record.summary
            loss = summary["eval_loss"]
            table.add_row(f"{value:g}", str(summary["steps"]), "diverged" if loss is None else f"{loss:.4f}")
        console.print(table)
    launcher.close()


if __name__ == "__main__":
    os.environ.setdefault("MARIN_PROFILE", "laptop")
    main()
