"""A data stage shared by pods that were started apart: what they tell each other through the store.

Rank 0 leads: it holds the lease, announces phase after phase, does its own share, waits for the others' reports, and
commits. Everything lies in the attempt's intermediate folder, under the lease's token, so that nobody takes an earlier
leader's word for this one's, and is gone after the commit.
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from marin_core.build import BuildOptions, Rank, build, run_rank
from marin_core.data.stages import Progress
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, LeaseLost, ObjectStore, Store, StoreError
from marin_core.tasks import TASKS

Log = Callable[[str], None]
Report = Callable[[Progress], None]

_SHORTEST_POLL_SECONDS = 0.1
_LONGEST_POLL_SECONDS = 2.0
_PROGRESS_SECONDS = 5.0
# A leader that waits this long for the same ranks says for which.
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class _Announcement:
    """What the leader whose lease has `token` wants done now, by `world` ranks."""

    token: int
    phase: str
    world: int


@dataclass(frozen=True)
class _RankReport:
    """Where a rank is in a phase; `error` is what its items found wrong, in one line."""

    done: int
    items: int
    finished: bool = False
    error: str | None = None


class _Board:
    """The objects through which the ranks of one artifact talk."""

    def __init__(self, store: Store, spec: ArtifactSpec):
        self._objects = store.objects
        self._folder = store.url(spec).removeprefix(f"{store.root}/") + "/.work/ranks"

    def announce(self, announcement: _Announcement) -> None:
        _put(self._objects, f"{self._folder}/phase.json", asdict(announcement))

    def announced(self) -> _Announcement | None:
        found = _get(self._objects, f"{self._folder}/phase.json")
        return None if found is None else _Announcement(**found)

    def give_up(self, error: str) -> None:
        """The leader's last word. The time tells two alike apart."""
        _put(self._objects, f"{self._folder}/failed.json", {"error": error, "time": time.time()})

    def given_up(self) -> dict[str, Any] | None:
        return _get(self._objects, f"{self._folder}/failed.json")

    def report(self, phase: _Announcement, rank: int, report: _RankReport) -> None:
        _put(self._objects, self._report_path(phase, rank), asdict(report))

    def reported(self, phase: _Announcement, rank: int) -> _RankReport | None:
        found = _get(self._objects, self._report_path(phase, rank))
        return None if found is None else _RankReport(**found)

    def _report_path(self, phase: _Announcement, rank: int) -> str:
        return f"{self._folder}/{phase.token}/{phase.phase}/{rank:05d}.json"


def lead_stage(spec: ArtifactSpec, store: Store, world: int, options: BuildOptions, log: Log, report: Report) -> None:
    """Build and commit an artifact as the first of `world` ranks.

    Raises:
        MarinError: what an item of any rank found wrong, or the task is no stage; the other ranks end with it.
    """
    _check_is_stage(spec)
    board = _Board(store, spec)

    def start_ranks(spec: ArtifactSpec, phase: str, lease_token: int) -> None:
        announcement = _Announcement(lease_token, phase, world)
        others = _Others(board, announcement, store.join(spec, lease_token).check, log, report)
        board.announce(announcement)
        run_rank(spec, store, Rank(phase, 0, world, lease_token), options, log, others.own_progress)
        others.wait()

    try:
        build(spec, store, options, log, report, start_ranks)
    except (LeaseLost, StoreError):
        raise  # of this process, or of the moment; who comes after goes on
    except MarinError as error:
        board.give_up(str(error))
        raise


def follow_stage(
    spec: ArtifactSpec, store: Store, rank: int, world: int, options: BuildOptions, log: Log, report: Report
) -> None:
    """Do a rank's share of whatever the leader announces, until the artifact is committed. Waits for a leader that is
    not there (yet, or any more) as long as it takes.

    Raises:
        MarinError: what an item found wrong, here or, as the leader tells it, elsewhere.
    """
    _check_is_stage(spec)
    board = _Board(store, spec)
    before = board.given_up()
    finished: _Announcement | None = None
    pause = _Pause()

    def run(phase: _Announcement, report: Report) -> None:
        if phase.world != world:
            raise MarinError(f"{spec.label} is shared by {phase.world} ranks, and this one was told {world}")
        log(f"{spec.label}, phase {phase.phase}: rank {rank} of {world}")
        run_rank(spec, store, Rank(phase.phase, rank, world, phase.token), options, log, report)

    while store.current(spec) is None:
        given_up = board.given_up()
        if given_up is not None and given_up != before:
            raise MarinError(given_up["error"])
        announced = board.announced()
        if announced is None or announced == finished:
            pause.longer()
            continue
        pause = _Pause()
        with contextlib.suppress(LeaseLost):  # the leader has a successor, who will announce
            _do_share(board, announced, rank, run, report)
        finished = announced


def _do_share(
    board: _Board, phase: _Announcement, rank: int, run: Callable[[_Announcement, Report], None], report: Report
) -> None:
    """Run a rank's items of a phase, telling the leader where it is and how it ended."""
    told = _RankReport(0, 0)
    last = time.monotonic()

    def progress(now: Progress) -> None:
        nonlocal told, last
        told = _RankReport(now.done, now.items)
        report(now)
        if time.monotonic() - last > _PROGRESS_SECONDS:
            last = time.monotonic()
            board.report(phase, rank, told)

    try:
        run(phase, progress)
    except (LeaseLost, StoreError):
        raise
    except MarinError as error:
        board.report(phase, rank, replace(told, error=str(error)))
        raise
    board.report(phase, rank, replace(told, finished=True))


class _Others:
    """The other ranks of a phase, as the leader sees them."""

    def __init__(self, board: _Board, phase: _Announcement, check: Callable[[], None], log: Log, report: Report):
        self._board, self._phase, self._check, self._log, self._report = board, phase, check, log, report
        self._known: dict[int, _RankReport] = {rank: _RankReport(0, 0) for rank in range(1, phase.world)}
        self._own = _RankReport(0, 0)
        self._looked = 0.0

    def own_progress(self, now: Progress) -> None:
        """Told after each of the leader's own items."""
        self._own = _RankReport(now.done, now.items)
        if time.monotonic() - self._looked > _PROGRESS_SECONDS:
            self._look()
        self._tell()

    def wait(self) -> None:
        """Until every other rank has finished.

        Raises:
            MarinError: what a rank's items found wrong.
            LeaseLost: the artifact has another writer now.
        """
        pause, began = _Pause(), time.monotonic()
        while missing := self._look():
            self._check()
            self._tell()
            if time.monotonic() - began > _PATIENCE_SECONDS:
                began = time.monotonic()
                ranks = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
                self._log(f"phase {self._phase.phase}: waiting for {len(missing)} ranks ({ranks})")
            pause.longer(len(missing) / 20)
        self._tell()

    def _look(self) -> list[int]:
        """Read the news of those that have not finished; returns who still has not."""
        for rank in [rank for rank, known in self._known.items() if not known.finished]:
            found = self._board.reported(self._phase, rank)
            if found is not None and found.error is not None:
                raise MarinError(f"phase {self._phase.phase}, rank {rank}: {found.error}")
            self._known[rank] = found or self._known[rank]
        self._looked = time.monotonic()
        return [rank for rank, known in self._known.items() if not known.finished]

    def _tell(self) -> None:
        all_ranks = [self._own, *self._known.values()]
        self._report(Progress(self._phase.phase, sum(r.done for r in all_ranks), sum(r.items for r in all_ranks)))


class _Pause:
    """Waiting longer and longer while nothing happens."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST_POLL_SECONDS

    def longer(self, at_least: float = 0.0) -> None:
        time.sleep(max(self._seconds, at_least))
        self._seconds = min(self._seconds * 1.5, _LONGEST_POLL_SECONDS)


def _check_is_stage(spec: ArtifactSpec) -> None:
    if not TASKS[spec.task].stage:
        raise MarinError(f"{spec.label}: task {spec.task!r} has no items to share; give its job one rank")


def _put(objects: ObjectStore, path: str, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    while not objects.create(path, data):
        stored = objects.read(path)
        if stored is not None and objects.replace(path, data, stored.version):
            return


def _get(objects: ObjectStore, path: str) -> dict[str, Any] | None:
    stored = objects.read(path)
    return None if stored is None else json.loads(stored.data)
