"""Building one artifact: hold its lease, run its task, commit its record. The same code wherever it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_core.data.stages import Stage, run_items, run_stage
from marin_core.errors import MarinError, disk_full_message
from marin_core.gang import Gang
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store, StoreError, Workspace, Writer


@dataclass(frozen=True)
class BuildOptions:
    """How artifacts are built here. Changes no bytes that count; not part of any identity."""

    scratch: Path
    checkpoint_every_seconds: float | None = None
    checkpoint_every_steps: int | None = None
    command: str | None = None
    dagster_run: str | None = None
    retries: int = 0
    # Processes that share the items of a stage.
    ranks: int = 1
    # What all chips of the job can do together, in FLOP/s; None leaves the utilization of them unknown.
    peak_flops: float | None = None


@dataclass(frozen=True)
class Rank:
    """One of `world` processes that share a phase of a stage, for the writer whose lease has `lease_token`."""

    phase: str
    rank: int
    world: int
    lease_token: int


@dataclass(frozen=True)
class Build:
    """What a task gets: what to build, where to write it, and whom to tell. A rank of a stage has no writer, nor has a
    process of a `gang` that does not lead it. `page` is a tracked task's (`marin_core.training.tracking`), if it has
    one."""

    spec: ArtifactSpec
    store: Store
    workspace: Workspace
    options: BuildOptions
    log: Callable[[str], None]
    report: Callable[[Any], None] = field(default=lambda progress: None)
    gang: Gang | None = None
    page: Any = None

    @property
    def writer(self) -> Writer:
        """The workspace of a task that is not shared by ranks."""
        assert isinstance(self.workspace, Writer)
        return self.workspace

    def input(self, role: str) -> Artifact:
        """The committed artifact that fills a role."""
        return self.store.artifact(self.spec.inputs[role])


@dataclass(frozen=True)
class Outcome:
    """What a task returns: the numbers for its record, and a content digest where the files' hashes will not do."""

    summary: dict[str, Any]
    content: str | None = None


def build(
    spec: ArtifactSpec,
    store: Store,
    options: BuildOptions,
    log: Callable[[str], None],
    report: Callable[[Any], None] = lambda progress: None,
    start_ranks: Callable[[ArtifactSpec, str, int], None] | None = None,
    gang: Gang | None = None,
    page: Any = None,
) -> ArtifactRecord:
    """Build and commit an artifact, or return its record if it is committed already.

    `start_ranks(spec, phase, lease token)` runs a phase of a stage in ranks elsewhere and waits for them; without it
    this process runs every item. `gang` are the processes that do the task together, led by this one; `page` is
    for the task.

    Raises:
        MarinError: whatever the task found wrong; nothing is committed.
    """
    from marin_core.tasks import TASKS

    task = TASKS[spec.task]
    try:
        with store.writer(spec, resumable=task.resumable, on_wait=_once(log, spec)) as writer:
            if writer.committed:
                return writer.committed
            made = task.load()(Build(spec, store, writer, options, log, report, gang, page))
            outcome = _run(made, writer, report, start_ranks) if isinstance(made, Stage) else made
            return writer.commit(
                outcome.summary,
                content=outcome.content,
                command=options.command,
                dagster_run=options.dagster_run,
                retries=options.retries,
            )
    except OSError as error:
        message = disk_full_message(error, store.url(spec))
        if message:
            raise StoreError(f"{spec.label}: {message}") from None
        raise


def run_rank(
    spec: ArtifactSpec,
    store: Store,
    rank: Rank,
    options: BuildOptions,
    log: Callable[[str], None],
    report: Callable[[Any], None] = lambda progress: None,
) -> None:
    """Run one rank's items of a phase; the writer that started the ranks commits.

    Raises:
        LeaseLost: the artifact has another writer now.
        MarinError: no such phase, or whatever an item found wrong.
    """
    from marin_core.tasks import TASKS

    workspace = store.join(spec, rank.lease_token)
    stage = TASKS[spec.task].load()(Build(spec, store, workspace, options, log, report))
    phases = {phase.name: phase for phase in stage.phases}
    if rank.phase not in phases:
        raise MarinError(f"{spec.label} has no phase {rank.phase!r}; there are {', '.join(phases)}")
    run_items(phases[rank.phase], workspace, rank=rank.rank, world=rank.world, report=report)


def _run(
    stage: Stage,
    writer: Writer,
    report: Callable[[Any], None],
    start_ranks: Callable[[ArtifactSpec, str, int], None] | None,
) -> Outcome:
    if start_ranks is None:
        return Outcome(run_stage(stage, writer, report=report))
    return Outcome(run_stage(stage, writer, lambda phase: start_ranks(writer.spec, phase.name, writer.lease_token)))


def _once(log: Callable[[str], None], spec: ArtifactSpec) -> Callable[[str], None]:
    told: set[str] = set()

    def on_wait(holder: str) -> None:
        if holder not in told:
            told.add(holder)
            log(f"{spec.label} is being built by {holder}; waiting for it")

    return on_wait
