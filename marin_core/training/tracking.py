"""A training run's page at Weights & Biases: whether there is one, and opening it.

Training never depends on it: what goes wrong with the page is one line of the log. All attempts of a run are one page,
whose id follows from the artifact's name and fingerprint. Offline (the default) the page is a file that `wandb sync`
uploads, kept in the folder `wandb` of the run's artifact. wandb's own variables say which server, entity and key.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from marin_core import environment
from marin_core.errors import MarinError
from marin_core.recipes import format_budget
from marin_core.store import ArtifactSpec, canonical_json, digest
from marin_core.training import page as pages
from marin_core.training.page import RunPage, ending, in_one_line, within

if TYPE_CHECKING:
    from wandb import Run

OPEN_SECONDS = 60.0
# wandb gives up by itself, and tidies up, so much earlier than it is left alone.
_MARGIN_SECONDS = 5.0
# A server that is there says within this that it had the run, and that somebody deleted it.
_FIRST_TRY_SECONDS = 5.0


def tracking_is_on() -> bool:
    """Whether runs of this process have pages. What WANDB_MODE says wrong is said when one is opened."""
    try:
        return environment.tracking() in ("online", "offline")
    except MarinError:
        return True


def page_id(spec: ArtifactSpec) -> str:
    """The W&B id of a run: the same in every attempt to build the artifact, another for any other artifact."""
    return digest(canonical_json([spec.name, spec.fingerprint]))


@contextlib.contextmanager
def run_page(spec: ArtifactSpec, scratch: Path, log: Callable[[str], None]) -> Iterator[RunPage | None]:
    """The page of `spec`, whose config has a plan, as far as one attempt to build it goes: finished when the block is
    left. None if there is none. An online page that does not open within a minute is an offline one."""
    page = _open(spec, scratch, log)
    try:
        yield page
    except BaseException as error:
        if page:
            page.finish(ending(error))
        raise
    if page:
        page.finish()


def _open(spec: ArtifactSpec, scratch: Path, log: Callable[[str], None]) -> RunPage | None:
    opened: Future[RunPage] = Future()
    said: list[str] = []
    try:
        page = within(OPEN_SECONDS, lambda: RunPage(_start(spec, scratch, said.append), log), opened)
    except BaseException as error:
        # It may come still: too late, or after SIGTERM.
        opened.add_done_callback(_abandon)
        if not isinstance(error, Exception):
            raise
        log(f"no W&B page: {in_one_line(error)}")
        return None
    # In this thread: no two may tell at once.
    for message in said:
        log(message)
    return page


def _start(spec: ArtifactSpec, scratch: Path, say: Callable[[str], None]) -> "Run":
    scratch.mkdir(parents=True, exist_ok=True)
    if environment.tracking() == "online":
        try:
            return _start_online(spec, scratch)
        except Exception as error:  # as many kinds as ways not to reach a server
            say(f"the W&B page is kept offline: {in_one_line(error)}")
    try:
        return _init(spec, scratch, "offline", page_id(spec), _MARGIN_SECONDS)
    except Exception:
        # wandb's process may have died since the worker's last run; by now there is a new one.
        return _init(spec, scratch, "offline", page_id(spec), _MARGIN_SECONDS)


def _start_online(spec: ArtifactSpec, scratch: Path) -> "Run":
    """The run with the page's id or, as W&B takes none again that somebody deleted there, with the next one: the id
    with 2, 3, … behind it."""
    patience = float(os.environ.get("WANDB_INIT_TIMEOUT") or OPEN_SECONDS)
    until = time.monotonic() + min(patience, OPEN_SECONDS - 2 * _MARGIN_SECONDS)
    number, seconds = 1, _FIRST_TRY_SECONDS
    while True:
        identity = page_id(spec) if number == 1 else f"{page_id(spec)}-{number}"
        try:
            return _init(spec, scratch, "online", identity, min(seconds, until - time.monotonic()))
        except Exception as error:
            if until - time.monotonic() < 1:
                raise
            if "previously created and deleted" in str(error):
                number += 1
            else:
                seconds = OPEN_SECONDS


def _init(
    spec: ArtifactSpec, scratch: Path, mode: Literal["online", "offline"], identity: str, seconds: float
) -> "Run":
    import wandb

    plan = spec.config["plan"]
    try:
        run = wandb.init(
            mode=mode,
            project=environment.wandb_project(),
            id=identity,
            resume="allow",
            group=spec.name,
            job_type=spec.task,
            name=spec.label,
            tags=[plan["recipe"], format_budget(plan["flops"])],
            config={**plan, "fingerprint": spec.fingerprint},
            dir=str(scratch),
            settings=wandb.Settings(
                init_timeout=seconds,
                finish_timeout=pages.FINISH_SECONDS - _MARGIN_SECONDS,
                finish_timeout_raises=True,
                # A warm worker has one run after another; none is that of the process.
                reinit="create_new",
                console="off",
                silent=True,
                # The artifact's record has the commit, and with it the packages: listing them takes half a second.
                disable_git=True,
                save_code=False,
                x_save_requirements=False,
            ),
        )
        run.define_metric("step", hidden=True)
        run.define_metric("*", step_metric="step")
    except Exception:
        # wandb's process keeps the id of a run that did not start, and is no use any more if it has died.
        with contextlib.suppress(Exception):
            wandb.teardown()
        raise
    return run


def _abandon(opened: "Future[RunPage]") -> None:
    if opened.exception() is None:
        opened.result().finish("failed")
