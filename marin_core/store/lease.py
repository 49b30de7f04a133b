"""Leases: at most one writer of an artifact, and a writer that lost its lease cannot commit.

A lease is a small object beside the artifact, renewed by a heartbeat. Every change of hands raises its `token` (the
fencing token); a holder proves that it still holds by a compare-and-swap.
"""

import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from marin_core.errors import MarinError
from marin_core.store.objects import ObjectStore

HEARTBEAT_SECONDS = 20.0
STALE_SECONDS = 90.0


class LeaseLost(MarinError):
    """Another writer took over; whatever this one was about to write must not be committed."""


@dataclass(frozen=True)
class LeaseState:
    """The content of a lease object. `renewed` is Unix time; `holder` says who, for people and for `_is_dead`."""

    token: int
    holder: str
    machine: str
    pid: int
    process_started: str
    renewed: float

    @classmethod
    def mine(cls, token: int) -> "LeaseState":
        pid = os.getpid()
        holder = f"process {pid} on {socket.gethostname()}"
        return cls(token, holder, machine(), pid, process_started(pid), time.time())

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    def is_over(self) -> bool:
        """Not renewed for too long, or held by a process of this machine that is gone."""
        if time.time() - self.renewed > STALE_SECONDS:
            return True
        return self.machine == machine() and process_started(self.pid) != self.process_started


class Lease:
    """A held lease. Use `Lease.acquire`; `check` raises as soon as it is known to be lost."""

    def __init__(self, objects: ObjectStore, path: str, state: LeaseState, version: str):
        self._objects, self._path, self._state, self._version = objects, path, state, version
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._released = threading.Event()
        threading.Thread(target=self._beat, name=f"lease {path}", daemon=True).start()

    @property
    def token(self) -> int:
        return self._state.token

    @classmethod
    def acquire(cls, objects: ObjectStore, path: str, on_wait: Callable[[str], None] = lambda holder: None) -> "Lease":
        """Wait until the lease is free, then take it. `on_wait` is told the holder while waiting."""
        while True:
            current = objects.read(path)
            if current is None:
                state = LeaseState.mine(token=1)
                taken = objects.create(path, state.encode())
            else:
                held = LeaseState(**json.loads(current.data))
                if not held.is_over():
                    on_wait(held.holder)
                    time.sleep(1)
                    continue
                state = LeaseState.mine(token=held.token + 1)
                taken = objects.replace(path, state.encode(), current.version)
            written = objects.read(path) if taken else None
            if written is not None and written.data == state.encode():
                return cls(objects, path, state, written.version)

    def check(self) -> None:
        """Raises LeaseLost if a heartbeat found the lease in other hands."""
        if self._lost:
            raise LeaseLost(f"lease {self._path} was lost: {self._lost}; nothing was committed, the new holder goes on")

    def renew(self) -> None:
        """Prove by compare-and-swap that the lease is still ours. Raises LeaseLost if not."""
        with self._lock:
            self.check()
            state = dataclasses.replace(self._state, renewed=time.time())
            if not self._objects.replace(self._path, state.encode(), self._version):
                self._lost = self._new_holder()
                self.check()
            written = self._objects.read(self._path)
            if written is None or json.loads(written.data)["token"] != self.token:
                self._lost = self._new_holder()
                self.check()
            else:
                self._state, self._version = state, written.version

    def release(self) -> None:
        """Give the lease up by marking it over, so that its token keeps counting."""
        self._released.set()
        with self._lock:
            if not self._lost:
                # Each place has its own words for being unreachable, and a lease that nobody renews is over by itself.
                with contextlib.suppress(Exception):
                    self._objects.replace(
                        self._path, dataclasses.replace(self._state, renewed=0.0).encode(), self._version
                    )

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            try:
                self.renew()
            except LeaseLost:
                return
            except Exception:
                continue  # the place is unreachable, each in its own words; the next beat or the commit will tell

    def _new_holder(self) -> str:
        current = self._objects.read(self._path)
        return "it was deleted" if current is None else f"held by {json.loads(current.data)['holder']}"


def machine() -> str:
    """Identifies the process table: kernel boot and PID namespace where there are such, else the host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def process_started(pid: int) -> str:
    """Start time of a process, so that a reused PID is not taken for its predecessor; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc").is_dir():
            return ""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "running"
