"""One artifact built by a gang: what its leader decides, and the others follow."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from marin_core.build import Build, BuildOptions, build
from marin_core.errors import MarinError
from marin_core.gang import Gang
from marin_core.store import ArtifactSpec, Store
from marin_core.tasks import TASKS
from marin_core.termination import Terminated


def lead_gang(
    spec: ArtifactSpec,
    store: Store,
    gang: Gang,
    options: BuildOptions,
    log: Callable[[str], None],
    report: Callable[[Any], None],
    page: Any = None,
) -> None:
    """Build and commit an artifact as process 0. The task tells the others `start`, what they need to take part.

    After an error in between this process must end: the others are in a step that cannot go on, and end with it.

    Raises:
        MarinError: whatever the task found wrong.
        PeerLost: another process has gone.
    """
    try:
        _check_is_for_gangs(spec)
        with _in_words(gang):
            build(spec, store, options, log, report, gang=gang, page=page)
    except Terminated:
        gang.leave()
        raise
    except MarinError as error:
        if not gang.has_told("start"):
            _dismiss(gang, str(error))
        raise
    _dismiss(gang, None)


def follow_gang(
    spec: ArtifactSpec, store: Store, gang: Gang, options: BuildOptions, log: Callable[[str], None]
) -> None:
    """Take part in building an artifact as a process other than 0, until it is committed.

    Raises:
        MarinError: what the leader found wrong.
        PeerLost: another process has gone.
    """
    start = gang.hear("start")
    if start is not None:
        workspace = store.join(spec, start["lease_token"])
        try:
            with _in_words(gang):
                TASKS[spec.task].load()(Build(spec, store, workspace, options, log, gang=gang))
        except Terminated:
            gang.leave()
            raise
    error = gang.hear("error")
    gang.leave()
    if error is not None:
        raise MarinError(error)


@contextlib.contextmanager
def _in_words(gang: Gang) -> Iterator[None]:
    """Turns what JAX says when another process has gone into an error of ours."""
    try:
        yield
    except MarinError:
        raise
    except Exception as error:
        lost = gang.lost_peer(error)
        if lost is None:
            raise
        raise lost from error


def _dismiss(gang: Gang, error: str | None) -> None:
    if not gang.has_told("start"):
        gang.tell("start", None)
    gang.tell("error", error)
    gang.leave()


def _check_is_for_gangs(spec: ArtifactSpec) -> None:
    if not TASKS[spec.task].gang:
        raise MarinError(f"{spec.label}: task {spec.task!r} runs in one process; give its job a pool of one host")
