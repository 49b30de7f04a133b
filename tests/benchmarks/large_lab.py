"""A lab of ten thousand runs and a hundred thousand outcomes, of which none is trained: the store holds of each what it
would hold of a run, with numbers that look like a run's."""

import dataclasses
import hashlib
import io
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from marin_core.environment import repository
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.records.experiment import DifferenceForecast, Experiment
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import record_run
from marin_core.store import ArtifactSpec, Store
from marin_core.store.record import FileEntry
from marin_core.store.spec import canonical_json, digest
from marin_core.store.store import RECORD

OUTCOMES_A_RUN = 50
_FAILED_SHARE = 0.03
_LOSS_ROWS = 200
_WRITERS = 4
_WIDTH_STEP = 8
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def write_profile(file: Path, partitions: int) -> Path:
    """A profile whose ladder is a square grid of `partitions` cells, on the data of the skills' trial profile."""
    side = round(partitions**0.5)
    budgets = [round(1e14 * 1.02**n, -9) for n in range(side)]
    file.write_text(
        f"""extends = "{repository()}/marin_assets/skills/trial.toml"
[scale]
fit_budgets = [{", ".join(f"{flops:.5e}" for flops in budgets)}]
heldout_budgets = [{budgets[-1] * 4:.5e}]
[scale.recipe]
base = "nano"
name = "grid"
version = "grid_v1"
vocab_size = 512
width_step = {_WIDTH_STEP}
wide_width_step = {_WIDTH_STEP}
max_width = {_WIDTH_STEP * side}
max_batch_size = 1_000_000_000
max_tokens_per_param = 1e12
max_params = 9e7
"""
    )
    return file


def commit_runs(store: Store, cells: Sequence[ArtifactSpec]) -> None:
    """Commit every training run: a record, a plan and a loss curve; one in forty diverged.

    The first by the store's writer. The others are files like its files and a record like its record, without a lease
    and without waiting for the disk, which for all of them would take minutes.
    """
    first, *others = enumerate(cells)
    with store.writer(first[1]) as writer:
        for path, data in _files(*first).items():
            with writer.open(path) as file:
                file.write(data)
        template = writer.commit(_summary(*first), command="dagster asset materialize --select 'delphi/*'")
    for number, spec in others:
        files = _files(number, spec)
        folder = Path(store.url(spec))
        folder.mkdir(parents=True)
        for path, data in files.items():
            (folder / path).write_bytes(data)
        entries = tuple(FileEntry(p, len(d), hashlib.sha256(d).hexdigest()) for p, d in sorted(files.items()))
        record = dataclasses.replace(
            template,
            fingerprint=spec.fingerprint,
            partition=spec.partition,
            payload=spec.payload,
            content=digest(canonical_json([[entry.path, entry.sha256] for entry in entries])),
            files=entries,
            summary=_summary(number, spec),
        )
        (folder / RECORD).write_text(json.dumps(record.to_json(), indent=2, sort_keys=True))


def commit_suite(store: Store, suite: ArtifactSpec) -> None:
    """Commit `delphi/suite`, which has every run among its inputs."""
    with store.writer(suite) as writer:
        with writer.open("runs.parquet") as file:
            pl.DataFrame({"cell": list(suite.inputs)}).write_parquet(file)
        writer.commit({"runs": len(suite.inputs) - 1})


def commit_experiment(store: Store, graph: LabGraph) -> None:
    """Register an experiment with every run of the ladder in one of its two arms, and commit a result that has them
    all among its inputs."""
    experiment = Experiment(
        id="every_run",
        title="Every other run of a ladder ends as its neighbour does",
        hypothesis="Made up, to have all runs on one page.",
        metric="validation loss after the last step, nats per token",
        forecast=DifferenceForecast(first="even", second="odd", low=-0.1, high=0.1),
        owner="team:benchmark",
        where="the benchmark",
        arms=lambda ladder: {"even": ladder[: len(ladder) // 2 * 2 : 2], "odd": ladder[1::2]},
    )
    made = dataclasses.replace(graph, declared=(experiment,)).experiments[experiment.id]
    assert made.result is not None
    for spec, path, summary in (
        (made.registration, "experiment.json", {"title": experiment.title}),
        (made.result, "result.json", {"difference": 0.0, "forecast_held": True, "registered_before_runs": True}),
    ):
        with store.writer(spec) as writer:
            writer.write_json(path, dict(spec.config) or summary)
            writer.commit(summary)


def _files(number: int, spec: ArtifactSpec) -> dict[str, bytes]:
    plan = spec.config["plan"]
    curve = io.BytesIO()
    pl.DataFrame(_curve(number, spec)).write_parquet(curve)
    return {"metrics.parquet": curve.getvalue(), "plan.json": json.dumps(plan, indent=2).encode()}


def _curve(number: int, spec: ArtifactSpec) -> dict[str, list[float]]:
    plan, chance = spec.config["plan"], random.Random(number)
    rows = range(0, plan["steps"], max(1, plan["steps"] // _LOSS_ROWS))
    losses = [2.5 + 4.5 / (1 + 9 * step / plan["steps"]) + chance.gauss(0, 0.03) for step in rows]
    return {"step": list(rows), "loss": losses, "learning_rate": [plan["optimizer"]["learning_rate"]] * len(rows)}


def _summary(number: int, spec: ArtifactSpec) -> dict[str, Any]:
    plan, diverged = spec.config["plan"], number % 40 == 39
    last = _curve(number, spec)["loss"][-1]
    loss = None if diverged else last
    return {
        "status": "diverged" if diverged else "succeeded",
        "eval_loss": loss,
        "evals": {f"eval/{name}": loss for name in ("loss", "bpb", "macro_loss", "code/loss", "prose/loss")},
        "train_loss": last,
        "steps": plan["steps"],
        "tokens": plan["steps"] * plan["batch_size"] * plan["seq_len"],
        "tokens_per_second": 40_000.0,
        "train_seconds": 20.0,
        "flops": plan["flops"],
        "hidden_dim": plan["hidden_dim"],
    }


def record_outcomes(store: Store, cells: Sequence[ArtifactSpec], records: int) -> None:
    """Record `records` outcomes of the cells, fifty to a Dagster run, three in a hundred of them failed."""
    with ThreadPoolExecutor(_WRITERS) as pool:
        for _ in pool.map(lambda run: record_run(store, run[0].dagster_run, run), _runs(cells, records)):
            pass


def one_run(cells: Sequence[ArtifactSpec], number: int) -> list[Outcome]:
    """What the Dagster run of a number came to."""
    first = number * OUTCOMES_A_RUN
    return [_outcome(cells[n % len(cells)], number, n) for n in range(first, first + OUTCOMES_A_RUN)]


def _runs(cells: Sequence[ArtifactSpec], records: int) -> Iterator[list[Outcome]]:
    yield from (one_run(cells, number) for number in range(records // OUTCOMES_A_RUN))


def _outcome(spec: ArtifactSpec, run: int, number: int) -> Outcome:
    chance = random.Random(number)
    failed = chance.random() < _FAILED_SHARE
    why = chance.choice(list(ExitClass)) if failed else None
    began = _BEGIN + timedelta(minutes=number)
    steps = spec.config["plan"]["steps"]
    last = chance.randrange(steps) if failed else steps
    return Outcome(
        dagster_run=f"{run:08x}-0000-4000-8000-000000000000",
        asset=CHECKPOINTS,
        partition=spec.partition,
        status="failed" if failed else "succeeded",
        began=began.isoformat(timespec="milliseconds"),
        ended=(began + timedelta(seconds=20)).isoformat(timespec="milliseconds"),
        fingerprint=spec.fingerprint,
        exit_class=why,
        reason=f"{why.value} at step {last} of {steps}" if why else "",
        last_step=last,
        steps=steps,
        loss=3.0 + chance.gauss(0, 0.1),
        log_tail=tuple(f"step {last - n}  loss {3 + n / 100:.3f}" for n in range(50, 0, -1)) if failed else (),
        commit=f"{number:040x}",
        dirty=False,
        command="dagster asset materialize --select 'delphi/*'",
        user="benchmark",
        host="benchmark",
        profile="grid",
        pool="cpu-1",
        chip_hours=20 / 3600,
    )
