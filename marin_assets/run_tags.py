"""What is written on a Dagster run as it begins: by whom, with which code, for which store, in which process."""

import multiprocessing
import os
import shlex
import socket
from collections.abc import Mapping

import dagster as dg

from marin_core.store import Provenance
from marin_core.store.lease import machine, process_started

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

# Dagster starts its own run workers with a description of the run as an argument of kilobytes.
_LONGEST_ARGUMENT = 200


def tag_run(instance: dg.DagsterInstance, run: dg.DagsterRun, *, store: str, profile: str, command: str) -> None:
    """Write on a run what its outcomes will say of it, unless a step of it has done so."""
    if PROCESS in run.tags:
        return
    here = Provenance.of(started="", ended="", command=shortened_command(command), dagster_run=run.run_id, retries=0)
    tags = {STORE: store, PROFILE: profile, COMMAND: here.command, HOST: here.host, USER: here.user}
    if here.commit:
        tags |= {COMMIT: here.commit, DIRTY: str(bool(here.dirty)).lower()}
    instance.add_run_tags(run.run_id, tags | {PROCESS: _this_process()})


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


def shortened_command(command: str) -> str:
    """A command without the arguments that no person wrote."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return shlex.join(word if len(word) <= _LONGEST_ARGUMENT else "…" for word in words)


def _this_process() -> str:
    # Where each step has a process of its own, the run is that which started it.
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent and parent.pid else os.getpid()
    return f"{pid} {process_started(pid)} {machine()}"
