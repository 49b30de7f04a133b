"""A training run's page at Weights & Biases: opened before the run, told each step, closed with how it went.

Training never depends on it: what goes wrong with the page is one line of the log. There is one if WANDB_PROJECT is
set; which server, entity and key is said by wandb's own variables.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_core.recipes import format_budget
from marin_core.store import ArtifactSpec
from marin_core.termination import Terminated

if TYPE_CHECKING:
    from wandb import Run

OPEN_SECONDS = 60.0
# A pod that got SIGTERM has saved its checkpoint by then, and has little time left.
FINISH_SECONDS = 30.0
# wandb gives up by itself, and tidies up, so much earlier than it is left alone.
_MARGIN_SECONDS = 5.0
# What W&B shows as finished is 0, as failed anything else.
_EXIT_CODES = {"succeeded": 0, "diverged": 1, "failed": 1, "preempted": 143}


def tracking_is_on() -> bool:
    """Whether runs of this process have pages."""
    return bool(os.environ.get("WANDB_PROJECT"))


class RunPage:
    """The page of one attempt. No method raises an error of W&B's, and none waits for the network but `finish`."""

    def __init__(self, run: "Run", log: Callable[[str], None]):
        self._run, self._log = run, log
        self._outcome: str | None = None
        self._complained = False
        # There is none of a run that is only written to disk (WANDB_MODE=offline).
        self.url: str | None = None if run.disabled or run.offline else run.settings.run_url or None

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Values of a step, not before those of an earlier one."""
        self._try(lambda: self._run.log(dict(values), step=step))

    def summarize(self, summary: Mapping[str, Any]) -> None:
        """The numbers of a run that came to its end; `status` among them says to which."""
        self._outcome = summary["status"]
        self._try(lambda: self._run.summary.update(dict(summary)))

    def finish(self, outcome: str | None = None) -> None:
        """Send the rest, for at most `FINISH_SECONDS`. `outcome` is one of `failed` and `preempted`, None what the
        summary says."""
        outcome = outcome or self._outcome

        def close() -> None:
            if outcome is not None:
                self._run.summary["status"] = outcome
            if outcome == "preempted":
                self._run.mark_preempting()
            self._run.finish(_EXIT_CODES.get(outcome or "", 0))

        self._try(lambda: _within(FINISH_SECONDS, close))

    def _try(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # wandb's own, the operating system's, or one that nobody has seen yet
            if not self._complained:
                self._log(f"the W&B page is not complete: {_line(error)}")
            self._complained = True


@contextlib.contextmanager
def run_page(spec: ArtifactSpec, attempt: int, scratch: Path, log: Callable[[str], None]) -> Iterator[RunPage | None]:
    """The page of an attempt to build `spec`, whose config has a plan, finished when the block is left; None if there
    is none. Attempts are separate runs at W&B, in one group."""
    page = _open(spec, attempt, scratch, log)
    try:
        yield page
    except BaseException as error:
        if page:
            page.finish("preempted" if isinstance(error, Terminated) else "failed")
        raise
    if page:
        page.finish()


def _open(spec: ArtifactSpec, attempt: int, scratch: Path, log: Callable[[str], None]) -> RunPage | None:
    opened: Future[Run] = Future()
    try:
        return RunPage(_within(OPEN_SECONDS, lambda: _init(spec, attempt, scratch), opened), log)
    except BaseException as error:
        # It may come still: too late, or after SIGTERM.
        opened.add_done_callback(_abandon)
        if not isinstance(error, Exception):
            raise
        log(f"no W&B page: {_line(error)}")
    return None


def _init(spec: ArtifactSpec, attempt: int, scratch: Path) -> "Run":
    import wandb

    plan = spec.config["plan"]
    scratch.mkdir(parents=True, exist_ok=True)
    patience = float(os.environ.get("WANDB_INIT_TIMEOUT") or OPEN_SECONDS)
    return wandb.init(
        project=os.environ["WANDB_PROJECT"],
        # W&B takes an id once, and an attempt's number comes again where the same artifact is built anew.
        id=f"{spec.fingerprint}-{attempt}-{secrets.token_hex(3)}",
        resume="never",
        group=spec.fingerprint,
        name=spec.label,
        tags=[plan["recipe"], format_budget(plan["flops"])],
        config=dict(plan),
        dir=str(scratch),
        settings=wandb.Settings(
            init_timeout=min(patience, OPEN_SECONDS - _MARGIN_SECONDS),
            finish_timeout=FINISH_SECONDS - _MARGIN_SECONDS,
            # A warm worker has one run after another; none is that of the process.
            reinit="create_new",
            console="off",
            silent=True,
            # The artifact's record has the commit.
            disable_git=True,
            save_code=False,
        ),
    )


def _within[T](seconds: float, call: Callable[[], T], future: "Future[T] | None" = None) -> T:
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


def _abandon(opened: "Future[Run]") -> None:
    if opened.exception() is None:
        opened.result().finish(1)


def _line(error: Exception) -> str:
    """In one line; wandb wraps its messages."""
    return " ".join(str(error).split()) or type(error).__name__
