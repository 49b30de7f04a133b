"""The record of a run while it happens: one row per step, kept through a kill, and the tracker that writes it."""

import contextlib
import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from fsspec.implementations.local import LocalFileSystem

from marin_core.errors import MarinError
from marin_core.store import Writer

if TYPE_CHECKING:
    from levanter.tracker.tracker import TrackerConfig

_SCHEMA = {
    "step": pl.Int64,
    "loss": pl.Float64,
    "learning_rate": pl.Float64,
    "adam_lr": pl.Float64,
    "seconds": pl.Float64,
}
# An object store has no append: rows go out in parts, at most this many seconds late.
_REMOTE_FLUSH_SECONDS = 5.0


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
    """Where a run is. `loss` in nats per token, `tokens_per_second` over the last few steps."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float


class MetricsLog:
    """Rows of a run in `metrics*.jsonl` of its artifact, readable after a kill at any moment, until they are
    `metrics.parquet`."""

    def __init__(self, writer: Writer):
        self._writer = writer
        self._appends = isinstance(writer.fs, LocalFileSystem)
        self._pending: list[str] = []
        self._flushed = time.monotonic()

    def load(self, up_to_step: int) -> list[dict[str, Any]]:
        """The rows with step <= `up_to_step`, in order, later attempts winning; the rest is forgotten for good."""
        rows: dict[int, dict[str, Any]] = {}
        table = self._writer.path("metrics.parquet")
        if self._writer.fs.exists(table):  # killed after its last step
            with contextlib.suppress(pl.exceptions.PolarsError):
                finished = pl.read_parquet(bytes(self._writer.fs.cat_file(table)))  # type: ignore[arg-type]
                rows = {row["step"]: row for row in finished.to_dicts()}
        for path in self._files():
            for line in bytes(self._writer.fs.cat_file(path)).decode(errors="replace").splitlines():  # type: ignore[arg-type]
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the kill cut this line short
                rows[row["step"]] = row
        kept = [rows[step] for step in sorted(rows) if step <= up_to_step]
        self.remove()
        for row in kept:
            self.append(row, flush=False)
        self._flush()
        return kept

    def append(self, row: Mapping[str, Any], *, flush: bool = True) -> None:
        self._pending.append(json.dumps(row))
        if flush and (self._appends or time.monotonic() - self._flushed > _REMOTE_FLUSH_SECONDS):
            self._flush()

    def remove(self) -> None:
        for path in self._files():
            self._writer.fs.rm_file(path)

    def _files(self) -> list[str]:
        return sorted(str(path) for path in self._writer.fs.glob(self._writer.path("metrics*.jsonl")))

    def _flush(self) -> None:
        if self._pending:
            name = "metrics.jsonl" if self._appends else f"metrics-{time.time_ns()}.jsonl"
            with self._writer.open(name, "ab" if self._appends else "wb") as file:
                file.write("".join(f"{row}\n" for row in self._pending).encode())
            self._pending.clear()
        self._flushed = time.monotonic()


class RunMetrics:
    """What the tracker hears from Levanter: rows per step, the latest evaluation, divergence, progress."""

    def __init__(
        self,
        log: MetricsLog,
        rows: list[dict[str, Any]],
        steps: int,
        tokens_per_step: int,
        report: Callable[[Progress], None],
    ):
        self._log, self.rows, self._steps = log, rows, steps
        self._tokens_per_step, self._report = tokens_per_step, report
        self._row: dict[str, Any] = {}
        self._times: list[float] = [time.monotonic()]
        self.evals: dict[str, float] = {}

    def hear(self, metrics: Mapping[str, Any], step: int | None) -> None:
        """One `log` call of Levanter's. A step's metrics arrive in several calls."""
        for name, value in metrics.items():
            if name.startswith("eval/") and ("loss" in name or "bpb" in name):
                self.evals[name] = float(value)
            elif name == "optim/learning_rate":
                self._row["learning_rate"] = float(value)
            elif name == "optim/adam_lr":
                self._row["adam_lr"] = float(value)
        # The final hooks repeat the last step's loss, and those of an already complete run report zero.
        if "train/loss" in metrics and step is not None and step > self.last_step:
            self._finish_step(step, float(metrics["train/loss"]))

    @property
    def last_step(self) -> int:
        """Index of the last step that is recorded, -1 before the first."""
        return self.rows[-1]["step"] if self.rows else -1

    def table(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows, schema=_SCHEMA)

    def _finish_step(self, step: int, loss: float) -> None:
        now = time.monotonic()
        row = {"step": step, "loss": loss, **self._row, "seconds": round(now - self._times[-1], 4)}
        self._times = [*self._times[-10:], now]
        self.rows.append(row)
        if not math.isfinite(loss):
            raise Diverged(step, loss)
        self._log.append(row)
        rate = self._tokens_per_step * (len(self._times) - 1) / (now - self._times[0])
        self._report(Progress(step + 1, self._steps, loss, rate))


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
