"""Labs in which something really went wrong, and is recorded: what other tests look at."""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path

import dagster as dg

from marin_assets.definitions import build_definitions
from marin_assets.recording import Recorder
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.records.outcome import Outcome
from marin_core.records.outcomes import read_outcomes
from marin_core.store import Store
from tests.conftest import REPOSITORY, TINY_PROFILE, LabEnvironment

DIVERGED, OUT_OF_MEMORY, KILLED = "8e9-d0008", "8e9-d0040", "8e9-d0056"
_PATIENCE = 240.0


def lab_with_failures(finished: LabEnvironment, folder: Path) -> LabEnvironment:
    """A copy of a finished lab in which one run diverged, one ran out of memory and one was killed, each recorded."""
    lab = copy_of(finished, folder)
    run_that_diverges(lab, DIVERGED)
    run_out_of_memory(lab, OUT_OF_MEMORY)
    run_that_is_killed(lab, KILLED)
    return lab


def copy_of(finished: LabEnvironment, folder: Path) -> LabEnvironment:
    shutil.copytree(finished.folder, folder / "lab", ignore=shutil.ignore_patterns("logs", "scratch"))
    return LabEnvironment(folder / "lab")


def outcomes(lab: LabEnvironment) -> list[Outcome]:
    return read_outcomes(Store(str(lab.store)))


def outcome_of(lab: LabEnvironment, key: str) -> Outcome:
    """The one outcome of a run of the ladder that has failed or was cancelled."""
    (found,) = [row for row in outcomes(lab) if row.partition == key and row.status != "succeeded"]
    return found


def run_that_diverges(lab: LabEnvironment, key: str) -> None:
    """Train a cell at rates of 1e30. They are those of another recipe, so it is another run of the same key."""
    rates = "reference_adam_lr = 1e30\nlearning_rate_cap = 1e30"
    other = altered(lab, "diverging", "[scale.recipe.hparams]", f"[scale.recipe.hparams]\n{rates}")
    assert start(other, key).wait(_PATIENCE) != 0


def run_out_of_memory(lab: LabEnvironment, key: str) -> None:
    """Train a cell that is evaluated with 16,384 sequences at a time, whose logits alone are 2 GiB, by a worker that
    gets half a gigabyte more than it has."""
    other = altered(lab, "hungry", "eval_batch_size = 8", "eval_batch_size = 16384")

    def limit(pid: int) -> None:
        held = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (held + 2**29, held + 2**29))

    _train_and_disturb(other, key, limit)


def run_that_is_killed(lab: LabEnvironment, key: str) -> None:
    """Train a cell whose workers are killed while they train, the second as the first."""
    _train_and_disturb(lab, key, lambda pid: os.kill(pid, signal.SIGKILL))


def start(lab: LabEnvironment, key: str) -> subprocess.Popen[bytes]:
    """`dagster asset materialize` of a cell, which the lab has forgotten."""
    forget(lab, key)
    command = ["dagster", "asset", "materialize", "--select", "checkpoints/delphi", "--partition", key]
    with (lab.folder / f"{key}.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=lab.variables, stdout=log, stderr=log, start_new_session=True
        )


def altered(lab: LabEnvironment, name: str, text: str, replacement: str) -> LabEnvironment:
    """The lab with a recipe of another name and other constants; its runs are others, of the same keys."""
    profile = lab.folder / f"{name}.toml"
    told = TINY_PROFILE.read_text().replace(
        'name = "tiny"\nversion = "tiny_v1"', f'name = "{name}"\nversion = "{name}_v1"'
    )
    assert text in told
    profile.write_text(told.replace(text, replacement))
    return LabEnvironment(lab.folder, profile)


def forget(lab: LabEnvironment, key: str) -> None:
    """Delete the run of a cell from the store."""
    spec = LabGraph.of(load_profile(str(lab.profile))).cells[key]
    shutil.rmtree(lab.store / spec.name / spec.fingerprint, ignore_errors=True)


def worker_at_work(lab: LabEnvironment, rows: Path, besides: Collection[int] = (), steps: int = 3) -> int | None:
    """The process that writes the rows of a run, once it has trained so many steps; None before."""
    found = subprocess.run(["pgrep", "-f", f"marin_core.worker --store {lab.store} "], capture_output=True, text=True)
    workers = set(map(int, found.stdout.split())) - set(besides)
    trains = rows.exists() and rows.read_bytes().count(b"\n") > steps
    return workers.pop() if workers and trains else None


def rows_of(lab: LabEnvironment, key: str) -> Path:
    """Where a run of the ladder writes a row per step while it trains."""
    spec = LabGraph.of(load_profile(str(lab.profile))).cells[key]
    return lab.store / spec.name / spec.fingerprint / "metrics.jsonl"


def recorder(lab: LabEnvironment) -> Recorder:
    """What records this lab's runs."""
    definitions = build_definitions(load_profile(str(lab.profile)))
    return Recorder(str(lab.store), Recorder.of(load_profile(str(lab.profile)), definitions.assets or ()).keys)


def instance(lab: LabEnvironment) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(lab.variables["DAGSTER_HOME"])


def _train_and_disturb(lab: LabEnvironment, key: str, disturb: Callable[[int], None]) -> None:
    command = start(lab, key)
    rows = rows_of(lab, key)
    disturbed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    while command.poll() is None:
        assert time.monotonic() < deadline, (lab.folder / f"{key}.log").read_text()
        # Each a little later than the one before it, which it goes on from.
        if pid := worker_at_work(lab, rows, disturbed, steps=3 + 10 * len(disturbed)):
            disturbed.add(pid)
            disturb(pid)
        time.sleep(0.05)
    assert disturbed, (lab.folder / f"{key}.log").read_text()
    assert command.returncode != 0, (lab.folder / f"{key}.log").read_text()
