"""What is written on a Dagster run as it begins: by whom, with which code, for which store, in which process."""

import multiprocessing
import os
import socket
from collections.abc import Mapping

import dagster as dg

from marin_core.store import Provenance
from marin_core.store.lease import machine, process_started

# The run that the others were written on.
RUN = "marin/run"
STORE = "marin/store"
PROFILE = "marin/profile"
COMMIT = "marin/commit"
DIRTY = "marin/dirty"
COMMAND = "marin/command"
HOST = "marin/host"
USER = "marin/user"
PROCESS = "marin/process"
# Set once the run's outcomes are recorded; its value names the record.
RECORDED = "marin/recorded"


def tag_run(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    *,
    store: str,
    profile: str,
    command: str,
    steps_are_processes: bool,
) -> None:
    """Write on a run what its outcomes will say of it, unless a step of it has done so. `steps_are_processes` says
    that each step has a process of its own, whose parent is the run's."""
    if PROCESS in own_tags(run):
        return
    here = Provenance.of(started="", ended="", command=command, dagster_run=run.run_id, retries=0)
    tags = {
        RUN: run.run_id,
        STORE: store,
        PROFILE: profile,
        COMMAND: here.command,
        HOST: here.host,
        USER: here.user,
        COMMIT: here.commit or "",
        DIRTY: str(bool(here.dirty)).lower() if here.commit else "",
        PROCESS: _process(steps_are_processes),
        RECORDED: "",
    }
    instance.add_run_tags(run.run_id, {name: value for name, value in tags.items() if value or name in run.tags})


def own_tags(run: dg.DagsterRun) -> Mapping[str, str]:
    """The tags of a run if they were written on it, else none: Dagster copies those of a run to every run that
    executes it again."""
    return run.tags if run.tags.get(RUN) == run.run_id else {}


def process_is_gone(tags: Mapping[str, str]) -> bool:
    """Whether the process that a run began in ran on this host and is not there any more; no if nobody can tell."""
    pid, _, rest = tags.get(PROCESS, "").partition(" ")
    started, _, on = rest.partition(" ")
    if not on or tags.get(HOST) != socket.gethostname():
        return False
    if on == machine():
        return process_started(int(pid)) != started
    # After a reboot no process is left; in another container of this host there may be.
    return on.split(" ")[0] != machine().split(" ")[0]


def _process(steps_are_processes: bool) -> str:
    # A run of a code server has a parent too: the server, which outlives it.
    parent = multiprocessing.parent_process() if steps_are_processes else None
    pid = parent.pid if parent and parent.pid else os.getpid()
    return f"{pid} {process_started(pid)} {machine()}"
