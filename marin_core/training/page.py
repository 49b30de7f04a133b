"""What a run shows on its page at Weights & Biases, and what becomes of the page in the end.

The page's axis is `step`, the training step, and not W&B's own `_step`, which only counts rows: a step that is trained
again after a crash is there twice, with the same values where the machine is of the same kind. Steps of less than a
second are not all shown: a row costs a millisecond of a core. Those with an evaluation are; all are in the metrics.
"""

import contextlib
import math
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_core.store import Writer
from marin_core.termination import Terminated
from marin_core.training.page_file import await_complete

if TYPE_CHECKING:
    from wandb import Run

# A pod that got SIGTERM has saved its checkpoint by then, and has little time left.
FINISH_SECONDS = 30.0
# Folder of an artifact with the pages that are not uploaded yet.
OFFLINE_FOLDER = "wandb"
# wandb's own process writes the end of a page's file after it was asked to.
_WRITTEN_SECONDS = 5.0
# What earlier attempts did not show is shown for at most so long.
_CATCH_UP_SECONDS = 10.0
# Steps without an evaluation are shown no more often.
_EVERY_SECONDS = 1.0
# Rows that wait for wandb's process; it takes thousands in a second.
_BACKLOG = 10_000
# What W&B shows as finished is 0, as failed anything else.
_EXIT_CODES = {"succeeded": 0, "diverged": 1, "failed": 1, "preempted": 143}
# Intermediate file: the last step that was shown when an attempt ended in order.
_SHOWN = "wandb-shown"


class RunPage:
    """The page of a run in one attempt. No method raises an error of W&B's, and none waits but `finish` and
    `kept_in`, which have their limits."""

    def __init__(self, run: "Run", log: Callable[[str], None]):
        self._run, self._log = run, log
        self._offline = bool(run.offline or run.disabled)
        self._file = Path(run.settings.sync_file)
        self._outcome: str | None = None
        self._summary: dict[str, Any] = {}
        self._row: dict[str, Any] = {}
        self._queued = -math.inf
        # The last step that is on the page; an earlier attempt's, where the server has that.
        self._shown = int(run.summary.get("step", -1)) if run.resumed else -1
        self._finished = self._used = self._kept = False
        # What went wrong first. It is told by the thread that trains: no two may tell at once.
        self._trouble: str | None = None
        self._said = False
        # wandb's process may be stuck, and `Run.log` with it.
        self._rows: queue.Queue[dict[str, Any] | None] = queue.Queue(_BACKLOG)
        self._sender = threading.Thread(target=self._send, name="wandb rows", daemon=True)
        self._sender.start()
        # There is none of a run that is only written to disk.
        self.url: str | None = None if self._offline else run.settings.run_url or None

    @property
    def links(self) -> dict[str, str]:
        """For the run's summary: `wandb_url`; `wandb_offline`, the artifact's folder that `wandb sync` takes, if this
        attempt or an earlier one left something there."""
        offline = {"wandb_offline": OFFLINE_FOLDER} if self._kept else {}
        return offline | ({"wandb_url": self.url} if self.url else {})

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Values of a step, not before those of an earlier one."""
        if self._row.get("step", step) != step:
            if self._row_counts():
                self._queue_row()
            self._row = {}
        self._row |= {**values, "step": step}
        self._shown, self._used = max(self._shown, step), True
        self._say()

    def summarize(self, summary: Mapping[str, Any]) -> None:
        """The numbers of a run that came to its end; `status` among them says to which."""
        self._outcome, self._summary, self._used = summary["status"], dict(summary), True

    @contextlib.contextmanager
    def kept_in(self, writer: Writer, rows: Iterable[Mapping[str, Any]]) -> Iterator[None]:
        """Within this block the run goes on after `rows`: what earlier attempts logged, with a `step`, values by name
        and the step's evaluations under `evals`. Those that died before they had shown it are made up for. In the end,
        whatever that is, an offline page is copied into the artifact."""
        self._try(lambda: self._catch_up(writer, rows))
        try:
            yield
        except BaseException as error:
            self._leave(writer, ending(error))
            raise
        self._leave(writer, None)

    def finish(self, outcome: str | None = None) -> None:
        """Send the rest, for at most `FINISH_SECONDS`. `outcome` is one of `failed` and `preempted`, None what the
        summary says. Only the first call does anything."""
        if not self._finished:
            self._finished = True
            self._queue_row()
            self._try(lambda: within(FINISH_SECONDS, lambda: self._close(outcome or self._outcome)))
            self._say()

    def _close(self, outcome: str | None) -> None:
        self._rows.put(None)
        self._sender.join()
        self._run.summary.update(self._summary)
        if outcome is not None:
            self._run.summary["status"] = outcome
        if outcome == "preempted":
            self._run.mark_preempting()
        self._run.finish(_EXIT_CODES.get(outcome or "", 0))
        if self._offline and not self._used:
            shutil.rmtree(self._file.parent, ignore_errors=True)

    def _catch_up(self, writer: Writer, rows: Iterable[Mapping[str, Any]]) -> None:
        noted = writer.read_work([_SHOWN]).get(_SHOWN, b"-1")
        shown = self._shown = max(self._shown, int(noted))
        until = time.monotonic() + _CATCH_UP_SECONDS
        for row in rows:
            if row["step"] <= shown:
                continue
            if time.monotonic() > until:
                raise TimeoutError(f"steps from {row['step']} on, of earlier attempts, are only in the metrics")
            self.show(row["step"], {k: v for k, v in row.items() if k != "evals"} | row.get("evals", {}))
            self._rows.put(self._row, timeout=_CATCH_UP_SECONDS)
            self._row = {}

    def _leave(self, writer: Writer, outcome: str | None) -> None:
        """Before the lease is released, so that nobody else writes there."""
        if self._offline:
            self.finish(outcome)
        self._try(lambda: within(FINISH_SECONDS, lambda: self._keep(writer)))
        self._say()

    def _keep(self, writer: Writer) -> None:
        self._kept = writer.fs.exists(writer.path(OFFLINE_FOLDER))
        if self._offline and self._used:
            self._copy(writer)
        with writer.open_work(_SHOWN) as file:
            file.write(str(self._shown).encode())

    def _copy(self, writer: Writer) -> None:
        await_complete(self._file, _WRITTEN_SECONDS)
        # `wandb sync` takes folders of this name; wandb tells attempts apart by the second, the lease by itself.
        path = f"{OFFLINE_FOLDER}/{self._file.parent.name}-{writer.lease_token}/{self._file.name}"
        with open(self._file, "rb") as page, writer.open(path) as copy:
            shutil.copyfileobj(page, copy)
        self._kept = True
        shutil.rmtree(self._file.parent, ignore_errors=True)

    def _row_counts(self) -> bool:
        is_due = time.monotonic() - self._queued >= _EVERY_SECONDS
        return is_due or any(name.startswith("eval/") for name in self._row)

    def _queue_row(self) -> None:
        row, self._row, self._queued = self._row, {}, time.monotonic()
        if row:
            try:
                self._rows.put_nowait(row)
            except queue.Full:
                self._complain("wandb does not take what it is told; steps are missing")

    def _send(self) -> None:
        while (row := self._rows.get()) is not None:
            self._try(lambda row=row: self._run.log(row))

    def _try(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # wandb's own, the operating system's, or one that nobody has seen yet
            self._complain(in_one_line(error))

    def _complain(self, message: str) -> None:
        self._trouble = self._trouble or message

    def _say(self) -> None:
        if self._trouble and not self._said:
            self._said = True
            self._log(f"the W&B page is not complete: {self._trouble}; what there is of it is in {self._file.parent}")


def ending(error: BaseException) -> str:
    return "preempted" if isinstance(error, Terminated) else "failed"


def within[T](seconds: float, call: Callable[[], T], future: "Future[T] | None" = None) -> T:
    """What `call` returns or raises, in a thread of its own, so that neither the network nor wandb's own idea of a
    timeout keeps the main thread.

    Raises:
        TimeoutError: it takes longer; the thread goes on.
    """
    result: Future[T] = Future() if future is None else future

    def run() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, name="wandb", daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError:
        if result.done():
            raise
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None


def in_one_line(error: Exception) -> str:
    """In one line; wandb wraps its messages."""
    return " ".join(str(error).split()) or type(error).__name__
