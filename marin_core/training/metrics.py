"""The record of a run while it happens: one row per step and what was evaluated after it, kept through a kill, and the
tracker that writes it."""

import dataclasses
import fnmatch
import functools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from fsspec.implementations.local import LocalFileSystem

from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.store import Writer
from marin_core.store.filesystem import read_files

if TYPE_CHECKING:
    from levanter.tracker.tracker import TrackerConfig

_SCHEMA = {
    "step": pl.Int64,
    "loss": pl.Float64,
    "learning_rate": pl.Float64,
    "adam_lr": pl.Float64,
    "seconds": pl.Float64,
}
_EVALS_SCHEMA = {"step": pl.Int64, "name": pl.String, "value": pl.Float64}
# An object store has no append: rows go out in parts, late by at most so many seconds, or by this share of the run so
# far, or there would be a part for every step of a run of weeks.
_REMOTE_FLUSH_SECONDS = 5.0
_REMOTE_FLUSH_SHARE = 0.01
_PARALLEL_DELETES = 8


class Diverged(MarinError):
    """The loss stopped being a number. An outcome of the run, not a fault of the lab."""

    def __init__(self, step: int, loss: float):
        super().__init__(f"diverged at step {step}: loss is {loss}; lower the recipe's reference_learning_rate")


class StopTraining(BaseException):
    """Carries an error out of Levanter, which logs and forgets every `Exception` of a tracker."""

    def __init__(self, cause: MarinError):
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True)
class Progress:
    """Where a run is. `loss` in nats per token, `tokens_per_second` over the last few steps.

    `mfu` is the model FLOPs utilization: what the plan counts as useful, per second, as a share of what the chips can
    do; None where nobody said what that is. `seconds_left` at the present rate, None before there is one.
    """

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    mfu: float | None = None
    seconds_left: float | None = None


class MetricsLog:
    """Rows of a run in `metrics*.jsonl` of its artifact, readable after a kill at any moment, until they are
    `metrics.parquet` and `evals.parquet`.

    A row has a `step`; what is said of a step in several rows is put together. Evaluations are under `evals`, a value
    per name.
    """

    def __init__(self, writer: Writer):
        self._writer = writer
        self._appends = isinstance(writer.fs, LocalFileSystem)
        self._pending: list[str] = []
        self._began = self._flushed = time.monotonic()

    def load(self, up_to_step: int) -> list[dict[str, Any]]:
        """The rows with step <= `up_to_step`, in order, later attempts winning; the rest is forgotten for good."""
        rows = self._finished()  # killed after its last step
        parts = self._parts()
        for data in read_files(self._writer.fs, parts).values():
            for line in data.decode(errors="replace").splitlines():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the kill cut this line short
                rows[row["step"]] = rows.get(row["step"], {}) | row
        kept = [rows[step] for step in sorted(rows) if step <= up_to_step]
        # Before they are removed: a kill in between must leave the rows of every checkpoint.
        self._write(self._new_part(), [json.dumps(row) for row in kept])
        self._remove(parts)
        return kept

    def append(self, row: Mapping[str, Any]) -> None:
        self._pending.append(json.dumps(row))
        now = time.monotonic()
        if self._appends or now - self._flushed > max(_REMOTE_FLUSH_SECONDS, _REMOTE_FLUSH_SHARE * (now - self._began)):
            self.flush()

    def remove(self) -> None:
        self._remove(self._parts())

    def flush(self) -> None:
        """Make every row durable."""
        if self._pending:
            self._write("metrics.jsonl" if self._appends else self._new_part(), self._pending)
            self._pending.clear()
        self._flushed = time.monotonic()

    def _write(self, name: str, rows: Sequence[str]) -> None:
        with self._writer.open(name, "ab" if self._appends else "wb") as file:
            file.write("".join(f"{row}\n" for row in rows).encode())

    def _new_part(self) -> str:
        return f"metrics-{time.time_ns()}.jsonl"

    def _finished(self) -> dict[int, dict[str, Any]]:
        urls = [self._writer.path("metrics.parquet"), self._writer.path("evals.parquet")]
        data = read_files(self._writer.fs, urls)
        if len(data) < len(urls):
            return {}
        try:
            metrics, evals = (pl.read_parquet(data[url]) for url in urls)
        except pl.exceptions.PolarsError:
            return {}  # killed while it wrote them, when the log was still there
        rows = {row["step"]: row for row in metrics.to_dicts()}
        for row in evals.to_dicts():
            rows[row["step"]].setdefault("evals", {})[row["name"]] = row["value"]
        return rows

    def _parts(self) -> list[str]:
        """URLs of the files of rows, in the order in which they were written."""
        names = [str(path).rsplit("/", 1)[-1] for path in self._writer.fs.ls(self._writer.url, detail=False)]
        return [self._writer.path(name) for name in sorted(names) if fnmatch.fnmatch(name, "metrics*.jsonl")]

    def _remove(self, parts: Sequence[str]) -> None:
        with ThreadPoolExecutor(_PARALLEL_DELETES) as pool:
            for _ in pool.map(self._writer.fs.rm_file, parts):
                pass


class RunMetrics:
    """What the tracker hears from Levanter: rows per step, evaluations, divergence, progress."""

    def __init__(
        self,
        plan: TrainPlan,
        log: MetricsLog | None = None,
        rows: Sequence[dict[str, Any]] = (),
        report: Callable[[Progress], None] = lambda progress: None,
        peak_flops: float | None = None,
        show: Callable[[int, Mapping[str, float]], None] = lambda step, values: None,
    ):
        """`log` keeps the rows, after those of earlier attempts; None in a process that does not lead its gang.
        `peak_flops` is what all chips can do together, in FLOP/s. `show(step, values)` gets what is heard of each step,
        and the evaluations."""
        self._plan, self._log, self._report = plan, log, report
        self.rows = [{name: value for name, value in row.items() if name != "evals"} for row in rows]
        # By step: what was evaluated after it, a value per name.
        self.evaluations: dict[int, dict[str, float]] = {row["step"]: row["evals"] for row in rows if "evals" in row}
        self._show = show
        self._peak_flops = peak_flops
        self._row: dict[str, Any] = {}
        self._began = time.monotonic()
        # When the last few steps of this attempt ended; its first includes the compilation.
        self._ended: list[float] = []

    def hear(self, metrics: Mapping[str, Any], step: int | None) -> None:
        """One `log` call of Levanter's. A step's metrics arrive in several calls."""
        evals: dict[str, float] = {}
        for name, value in metrics.items():
            if name.startswith("eval/") and ("loss" in name or "bpb" in name):
                evals[name] = float(value)
            elif name == "optim/learning_rate":
                self._row["learning_rate"] = float(value)
            elif name == "optim/adam_lr":
                self._row["adam_lr"] = float(value)
        if evals and step is not None:
            self.evaluations[step] = evals
            if self._log:
                self._log.append({"step": step, "evals": evals})
            self._show(step, evals)
        # The final hooks repeat the last step's loss, and those of an already complete run report zero.
        if "train/loss" in metrics and step is not None and step > self.last_step:
            self._finish_step(step, float(metrics["train/loss"]))

    @property
    def last_step(self) -> int:
        """Index of the last step that is recorded, -1 before the first."""
        return self.rows[-1]["step"] if self.rows else -1

    @property
    def evals(self) -> dict[str, float]:
        """The latest evaluation, a value per name; empty before the first."""
        return self.evaluations[max(self.evaluations)] if self.evaluations else {}

    @property
    def owed_evaluation(self) -> int | None:
        """The last recorded step, if it was to be evaluated and its run ended before it was: Levanter saves first, and
        a resumed run begins with the step after it. The last step of the plan is never owed, as a run that resumes
        there evaluates."""
        step = self.last_step
        due = (step + 1) % self._plan.steps_per_eval == 0 and 0 <= step < self._plan.steps - 1
        return step if due and step not in self.evaluations else None

    def table(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows, schema=_SCHEMA)

    def evals_table(self) -> pl.DataFrame:
        """A row per step that was evaluated, and name."""
        rows = [(step, *item) for step, evals in sorted(self.evaluations.items()) for item in sorted(evals.items())]
        return pl.DataFrame(rows, schema=_EVALS_SCHEMA, orient="row")

    def _finish_step(self, step: int, loss: float) -> None:
        now = time.monotonic()
        since = self._ended[-1] if self._ended else self._began
        row = {"step": step, "loss": loss, **self._row, "seconds": round(now - since, 4)}
        self._ended = [*self._ended[-10:], now]
        self.rows.append(row)
        progress = self._progress(step + 1, loss)
        self._show(step, _shown(row, progress))
        if not math.isfinite(loss):
            raise Diverged(step, loss)
        if self._log:
            self._log.append(row)
        self._report(progress)

    def _progress(self, done: int, loss: float) -> Progress:
        plan, ended = self._plan, self._ended
        steady = len(ended) > 1
        seconds = (ended[-1] - ended[0]) / (len(ended) - 1) if steady else ended[-1] - self._began
        rate = plan.batch_size * plan.seq_len / seconds
        useful = plan.flops / plan.tokens * rate
        return Progress(
            done,
            plan.steps,
            loss,
            rate,
            mfu=useful / self._peak_flops if self._peak_flops and steady else None,
            seconds_left=(plan.steps - done) * seconds if steady else None,
        )


def _shown(row: Mapping[str, float], progress: Progress) -> dict[str, float]:
    """A step in the names of `metrics.parquet`, with its pace."""
    values = {name: value for name, value in row.items() if name != "step"}
    values["tokens_per_second"] = progress.tokens_per_second
    return values if progress.mfu is None else {**values, "mfu": progress.mfu}


def tracker_config(heard: RunMetrics) -> "TrackerConfig":
    """A Levanter tracker that tells `heard`."""
    config = _config_class()()
    config.heard = heard  # no field: Levanter writes a configuration's fields down
    return config


@functools.cache
def _config_class() -> Any:
    """Levanter's registry of trackers takes a name once, and only for a class of its own."""
    from levanter.tracker.tracker import NoopTracker, Tracker, TrackerConfig

    class RunTracker(NoopTracker):
        name = "marin"

        def __init__(self, heard: RunMetrics):
            self._heard = heard

        def log(self, metrics: Mapping[str, Any], *, step: int | None, commit: bool | None = None) -> None:
            try:
                self._heard.hear(metrics, None if step is None else int(step))
            except MarinError as error:
                raise StopTraining(error) from error

    @TrackerConfig.register_subclass("marin")
    @dataclasses.dataclass
    class RunTrackerConfig(TrackerConfig):
        def init(self, run_id: str | None) -> Tracker:
            return RunTracker(self.heard)  # type: ignore[attr-defined]

    return RunTrackerConfig
