"""What the lab costs on top of what it stands on, as ratios measured in one run.

    deploy/run python tests/benchmarks/overhead.py

1. A training step through our worker over the same step in the bare Levanter loop, warm, both loops in turn in one
   process (medians of the step's wall time).
2. A fully reused `--select 'delphi/*'` over an empty Dagster run of as many assets (CPU seconds of the whole process,
   in turn).
"""

import dataclasses
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from marin_core.environment import repository

ROUNDS = 5


def median_gap(times: list[float]) -> float:
    """Median distance of successive times, the first steps left out: they warm up."""
    return statistics.median(b - a for a, b in itertools.pairwise(times[20:]))


def step_overhead() -> tuple[float, float]:
    """(our step, Levanter's step) in milliseconds."""
    from levanter.main import train_lm
    from levanter.tracker.tracker import NoopTracker, TrackerConfig

    from marin_core.build import Build, BuildOptions
    from marin_core.graph import LabGraph
    from marin_core.profile import load_profile
    from marin_core.recipes import TrainPlan
    from marin_core.store import ArtifactSpec, Store
    from marin_core.tasks.training import train_data
    from marin_core.training.levanter_config import Checkpointing, levanter_config
    from marin_core.training.run import RunOptions, train

    profile = load_profile()
    graph, store = LabGraph.of(profile), Store(profile.place.store)
    plan = graph.plan(graph.candidates[max(graph.candidates, key=lambda key: graph.candidates[key].flops)])
    plan = dataclasses.replace(plan, steps=120)
    times: list[float] = []

    class Clock(NoopTracker):
        def log(self, metrics, *, step, commit=None):  # type: ignore[no-untyped-def]
            if "train/loss" in metrics:
                times.append(time.perf_counter())

    @dataclasses.dataclass
    class ClockConfig(TrackerConfig):
        def init(self, run_id):  # type: ignore[no-untyped-def]
            return Clock()

    def bare(plan: TrainPlan, folder: Path) -> float:
        times.clear()
        nowhere = Checkpointing(str(folder), None, None, None, stops_at=lambda step: False, before_save=lambda: None)
        spec = ArtifactSpec("benchmark", "train", "1")
        data = train_data(Build(spec, store, None, BuildOptions(folder), print), graph.mixture, plan)  # type: ignore[arg-type]
        train_lm.main(levanter_config(plan, data, nowhere, ClockConfig(), "bare", folder))
        return median_gap(times)

    def ours(plan: TrainPlan, folder: Path) -> float:
        spec = ArtifactSpec("benchmark", "train", "1")
        seconds: list[float] = []
        with Store(str(folder / "store")).writer(spec) as writer:
            data = train_data(Build(spec, store, writer, BuildOptions(folder), print), graph.mixture, plan)
            train(plan, data, writer, RunOptions(folder, None), print, lambda p: seconds.append(time.perf_counter()))
        return median_gap(seconds)

    measured: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(ROUNDS):
        for name, loop in (("bare", bare), ("ours", ours)):
            with tempfile.TemporaryDirectory() as folder:
                measured[name].append(loop(plan, Path(folder)))
    return 1e3 * statistics.median(measured["ours"]), 1e3 * statistics.median(measured["bare"])


EMPTY = """
import dagster as dg
def make(i):
    @dg.asset(key=["delphi", f"a{i}"], deps=[["delphi", f"a{i-1}"]] if i else [])
    def body() -> dg.MaterializeResult:
        return dg.MaterializeResult()
    return body
defs = dg.Definitions(assets=[make(i) for i in range(9)], executor=dg.in_process_executor)
"""


def reuse_overhead() -> tuple[float, float]:
    """(a reused delphi/*, an empty run of nine assets) in CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.py")
        empty.write_text(EMPTY)
        commands = {
            "reused": ["dagster", "asset", "materialize", "--select", "delphi/*"],
            "empty": ["dagster", "asset", "materialize", "-f", str(empty), "--select", "*"],
        }
        settings = (repository() / "deploy" / "laptop" / "dagster.yaml").read_text()
        used: dict[str, list[float]] = {name: [] for name in commands}
        for round_ in range(ROUNDS + 1):
            for name, command in commands.items():
                home = Path(folder, f"home-{name}")
                home.mkdir(exist_ok=True)
                (home / "dagster.yaml").write_text(settings)
                variables = {**os.environ, "DAGSTER_HOME": str(home), "MARIN_STATE": os.environ["MARIN_STATE"]}
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(command, cwd=repository(), env=variables, check=True, capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if round_:  # the first builds the instance
                    used[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return statistics.median(used["reused"]), statistics.median(used["empty"])


def main() -> None:
    from marin_core import environment
    from marin_core.jobs.process import worker_environment

    os.environ.setdefault("MARIN_STATE", str(environment.state_folder()))
    subprocess.run(["dagster", "asset", "materialize", "--select", "delphi/*"], cwd=repository(), check=True)
    reused, empty = reuse_overhead()
    print(
        f"reused delphi/*: {reused:.2f} CPU s, empty run of as many assets: {empty:.2f} CPU s, "
        f"ratio {reused / empty:.2f}"
    )
    if "NPROC" not in os.environ:
        # XLA reads its thread count when it starts: run the second half as a worker runs.
        variables = os.environ | worker_environment(1, environment.state_folder(), os.environ)
        subprocess.run([sys.executable, __file__], env=variables, check=True)
        return


if __name__ == "__main__":
    if "NPROC" in os.environ:
        ours, bare = step_overhead()
        print(
            f"training step: ours {ours:.2f} ms, bare Levanter loop {bare:.2f} ms, ratio {ours / bare:.3f}", flush=True
        )
        # Not by way of the interpreter's end, where threads of JAX and TensorStore are known to crash.
        os._exit(0)
    else:
        main()
