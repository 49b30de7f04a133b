"""Building one artifact: hold its lease, run its task, commit its record. The same code wherever it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_core.errors import MarinError, disk_full_message
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store, Writer


@dataclass(frozen=True)
class BuildOptions:
    """How artifacts are built here. Changes no bytes that count; not part of any identity."""

    scratch: Path
    checkpoint_every_seconds: float | None = None
    checkpoint_every_steps: int | None = None
    command: str | None = None
    dagster_run: str | None = None
    retries: int = 0


@dataclass(frozen=True)
class Build:
    """What a task gets: what to build, where to write it, and whom to tell."""

    spec: ArtifactSpec
    store: Store
    writer: Writer
    options: BuildOptions
    log: Callable[[str], None]
    report: Callable[[Any], None] = field(default=lambda progress: None)

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
) -> ArtifactRecord:
    """Build and commit an artifact, or return its record if it is committed already.

    Raises:
        MarinError: whatever the task found wrong; nothing is committed.
    """
    from marin_core.tasks import TASKS

    task = TASKS[spec.task]
    try:
        with store.writer(spec, resumable=task.resumable, on_wait=_once(log, spec)) as writer:
            if writer.committed:
                return writer.committed
            outcome = task.load()(Build(spec, store, writer, options, log, report))
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
            raise MarinError(f"{spec.label}: {message}") from None
        raise


def _once(log: Callable[[str], None], spec: ArtifactSpec) -> Callable[[str], None]:
    told: set[str] = set()

    def on_wait(holder: str) -> None:
        if holder not in told:
            told.add(holder)
            log(f"{spec.label} is being built by {holder}; waiting for it")

    return on_wait
