"""One measurement in one process: CPU seconds, wall seconds and peak memory of a part of a function.

A method is a function `method(clock, …) -> facts`: it imports and prepares, does the work that counts
`with clock:`, then checks its result and returns facts about it as JSON. `measure` runs it in a fresh process of a
given interpreter, bound to a number of cores. This module stands on the standard library alone: the peers' environment
runs it too.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Clock:
    """What happens in its `with` block: CPU seconds (user and system, of the process and its children), wall seconds,
    and the peak resident memory of the largest process so far, in MB.

    A method may use `cores` and write into the folder `scratch`, which is gone after it.
    """

    def __init__(self, cores: int, scratch: str) -> None:
        self.cores, self.scratch = cores, scratch
        self.cpu_s = self.wall_s = self.rss_mb = 0.0

    def __enter__(self) -> Self:
        self.cpu_s, self.wall_s = -cpu_seconds(), -time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cpu_s += cpu_seconds()
        self.wall_s += time.perf_counter()
        self.rss_mb = max(peak_mb(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)


@dataclass(frozen=True)
class Measurement:
    """What one method did with `megabytes` of text on `cores`."""

    method: str
    cores: int
    megabytes: float
    documents: int
    cpu_s: float
    wall_s: float
    rss_mb: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def per_cpu_second(self) -> float:
        """MB of text per CPU second."""
        return self.megabytes / self.cpu_s

    @property
    def per_second(self) -> float:
        """MB of text per second of wall time."""
        return self.megabytes / self.wall_s


def measure(method: str, python: Path, size: tuple[float, int], cores: int = 1, **arguments: Any) -> Measurement:
    """Run `module:function` of this folder in a process of its own. `size` is the input's (MB of text, documents).

    Raises:
        RuntimeError: the process failed; the message ends with what it printed last.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [str(python), __file__, method, json.dumps(arguments), str(result), "--cores", str(cores)]
        done = subprocess.run(command, env=os.environ | threads(cores), capture_output=True, text=True, check=False)
        if done.returncode or not result.exists():
            raise RuntimeError(f"{method} failed (exit {done.returncode}): {(done.stdout + done.stderr)[-2000:]}")
        return Measurement(method, cores, *size, **json.loads(result.read_text()))


def threads(cores: int) -> dict[str, str]:
    """Environment variables that bound the thread pools of the libraries measured here; no network for any of them."""
    pools = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    offline = {"HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "WANDB_MODE": "disabled"}
    return {name: str(cores) for name in pools} | offline


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def peak_mb() -> float:
    """Of this process alone: ru_maxrss would also remember the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("arguments", type=json.loads)
    parser.add_argument("result", type=Path)
    parser.add_argument("--cores", type=int, default=1)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    module, function = options.method.split(":")
    scratch = options.result.parent / "scratch"
    scratch.mkdir()
    clock = Clock(options.cores, str(scratch))
    facts = getattr(importlib.import_module(module), function)(clock, **options.arguments)
    measured = {"cpu_s": clock.cpu_s, "wall_s": clock.wall_s, "rss_mb": clock.rss_mb}
    options.result.write_text(json.dumps({**measured, "facts": facts}))
    sys.stdout.flush()
    os._exit(0)  # some libraries leave threads behind that never end


if __name__ == "__main__":
    main()
