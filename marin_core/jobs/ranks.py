"""Ranks of a data stage as processes on this machine: the same entry point that an Indexed Job's pods would run."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, Store


def local_ranks(store: Store, world: int, log: Callable[[str], None]) -> Callable[[ArtifactSpec, str, int], None]:
    """A `start_ranks` of `build`: `world` processes share a phase and all must end well."""

    def start_ranks(spec: ArtifactSpec, phase: str, lease_token: int) -> None:
        plan = store.save_plan(spec)
        command = [sys.executable, "-m", "marin_core.worker", "--store", store.root, "--plan", plan, "--phase", phase]
        command += ["--world", str(world), "--lease-token", str(lease_token)]
        ranks = [_Rank([*command, "--rank", str(rank)], rank, log) for rank in range(world)]
        try:
            errors = [error for rank in ranks if (error := rank.wait())]
        finally:
            for rank in ranks:
                rank.kill()
        if errors:
            raise MarinError(f"{spec.label}, phase {phase}: {'; '.join(dict.fromkeys(errors))}")

    return start_ranks


class _Rank:
    """One process, heard by a thread of its own so that none waits for a reader."""

    def __init__(self, command: list[str], rank: int, log: Callable[[str], None]):
        self._rank, self._log = rank, log
        self._error: str | None = None
        # One that outlives this process stops by itself when another writer takes the lease.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout
        self._hearing = threading.Thread(target=self._hear, args=(self._process.stdout,), daemon=True)
        self._hearing.start()

    def wait(self) -> str | None:
        """The error it ended with, None if it ended well."""
        code = self._process.wait()
        self._hearing.join()
        if code != 0:
            return self._error or f"rank {self._rank} ended with exit code {code}"
        return None

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _hear(self, events: IO[bytes]) -> None:
        for line in events:
            try:
                event = json.loads(line)
            except ValueError:
                return  # its end cut the line short
            if event["event"] == "log":
                self._log(event["message"])
            elif event["event"] == "failed":
                self._error = event["error"]
