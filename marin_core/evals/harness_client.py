"""The harness's process as its parent sees it: started once, asked many times, ended when it does not answer."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from marin_core.evals.harness_request import HarnessRequest, Reply

# Of its output, what goes into an error: lines, and characters altogether.
_LINES, _CHARACTERS = 3, 400


class HarnessProcess:
    """`python -m marin_core.evals.harness_process`, with its output in `harness-PID.log` of a folder,
    where PID is this process's: several workers of a machine may share the folder.

    It imports the harness at its first request, which takes seconds, and answers the next ones at once. It ends when
    its standard input is closed, so it cannot outlive its parent. `offline` forbids it to ask a hub.
    """

    def __init__(self, folder: Path, *, offline: bool):
        self.offline = offline
        self.log = folder / f"harness-{os.getpid()}.log"
        folder.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "marin_core.evals.harness_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **_environment(folder, offline)},
                # Killed with whatever a task has started. A Ctrl-C in the terminal is for the parent.
                start_new_session=True,
            )
        self._replies: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._hear, args=(self._process.stdout,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, request: HarnessRequest) -> Reply:
        """Ask and wait. If the process dies or takes more than the request's `timeout_seconds`, the reply says so, with
        its last lines, and the process is gone."""
        said_before = self.log.stat().st_size
        assert self._process.stdin
        try:
            self._process.stdin.write(request.to_line())
            self._process.stdin.flush()
            line = self._replies.get(timeout=request.timeout_seconds)
        except BrokenPipeError:
            line = b""
        except queue.Empty:
            self.kill()
            what = f"task {request.name} took more than {request.timeout_seconds} seconds and was ended"
            return Reply("infra_failed", what + self._last_lines(said_before))
        except BaseException:  # our own end: nobody is left to hear the answer
            self.kill()
            raise
        if line.endswith(b"\n"):
            return Reply.from_line(line)
        self.kill()
        how = f"the harness's process {self._how_it_ended()} during task {request.name}"
        return Reply("infra_failed", how + self._last_lines(said_before))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End it in order."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _hear(self, replies: IO[bytes]) -> None:
        with replies:
            for line in replies:
                self._replies.put(line)
        self._replies.put(b"")

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        if code < 0:
            hint = "; out of memory?" if code == -signal.SIGKILL else ""
            return f"was killed by {signal.Signals(-code).name}{hint}"
        return f"ended with exit code {code}"

    def _last_lines(self, offset: int) -> str:
        with open(self.log, "rb") as file:
            file.seek(offset)
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        said = " | ".join(lines[-_LINES:])[-_CHARACTERS:]
        return f"; its last lines: {said}" if said else ""


_warm: HarnessProcess | None = None


def warm_process(folder: Path, *, offline: bool) -> HarnessProcess:
    """This worker's one harness process, started if there is none that lives and keeps to `offline`."""
    global _warm
    if _warm is not None and (not _warm.alive or _warm.offline != offline):
        _warm.kill()
        _warm = None
    if _warm is None:
        _warm = HarnessProcess(folder, offline=offline)
    return _warm


def _environment(folder: Path, offline: bool) -> dict[str, str]:
    local = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1,localhost"]))
    environment = {
        # The accelerator is the parent's.
        "JAX_PLATFORMS": "cpu",
        "USE_JAX": "0",
        "NO_PROXY": local,
        "no_proxy": local,
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        # Standard errors by resampling in this one process.
        "DISABLE_MULTIPROC": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if offline:
        environment |= {
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            # Tables made of local files. What comes from a hub stays in the machine's own cache.
            "HF_DATASETS_CACHE": str(folder / "datasets"),
        }
    return environment
