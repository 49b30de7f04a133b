"""Ranks of a data stage as processes on this machine: the same entry point that an Indexed Job's pods would run."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

from marin_core.data.stages import Progress
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, Store


def local_ranks(
    store: Store, world: int, log: Callable[[str], None], report: Callable[[Progress], None]
) -> Callable[[ArtifactSpec, str, int], None]:
    """A `start_ranks` of `build`: `world` processes share a phase and all must end well; the first that does not ends
    the others."""

    def start_ranks(spec: ArtifactSpec, phase: str, lease_token: int) -> None:
        plan = store.save_plan(spec)
        command = [sys.executable, "-m", "marin_core.worker", "--store", store.root, "--plan", plan, "--phase", phase]
        command += ["--world", str(world), "--lease-token", str(lease_token)]
        done: dict[int, Progress] = {}

        def progress(rank: int, now: Progress) -> None:
            done[rank] = now
            report(Progress(phase, sum(p.done for p in done.values()), sum(p.items for p in done.values())))

        ranks = [_Rank([*command, "--rank", str(rank)], rank, log, progress) for rank in range(world)]
        try:
            running = True
            while running:
                # Asked before the errors: a rank that ends in between is asked again.
                running = any(rank.is_running() for rank in ranks)
                if error := next(filter(None, (rank.error() for rank in ranks)), None):
                    raise MarinError(f"{spec.label}, phase {phase}: {error}")
                time.sleep(0.02)
        finally:
            for rank in ranks:
                rank.kill()

    return start_ranks


class _Rank:
    """One process, heard by a thread of its own so that none waits for a reader."""

    def __init__(
        self, command: list[str], rank: int, log: Callable[[str], None], progress: Callable[[int, Progress], None]
    ):
        self._rank, self._log, self._progress = rank, log, progress
        self._error: str | None = None
        # One that outlives this process stops by itself when another writer takes the lease.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout
        self._hearing = threading.Thread(target=self._hear, args=(self._process.stdout,), daemon=True)
        self._hearing.start()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def error(self) -> str | None:
        """What it ended with, None while it runs or if it ended well."""
        code = self._process.poll()
        if not code:
            return None
        self._hearing.join()
        return self._error or f"rank {self._rank} ended with exit code {code}"

    def kill(self) -> None:
        if self.is_running():
            self._process.kill()
            self._process.wait()
        self._hearing.join()

    def _hear(self, events: IO[bytes]) -> None:
        for line in events:
            try:
                event = json.loads(line)
            except ValueError:
                return  # its end cut the line short
            if event["event"] == "log":
                self._log(event["message"])
            elif event["event"] == "progress":
                self._progress(self._rank, Progress(**event["progress"]))
            elif event["event"] == "failed":
                self._error = event["error"]
