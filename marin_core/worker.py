"""The one entry point that a job runs: read a plan from the store, build its artifact, commit it.

    python -m marin_core.worker --store ROOT --plan PATH      one plan, then exit
    python -m marin_core.worker --store ROOT --plan PATH --phase NAME --rank R --world N --lease-token T
                                                              one rank of a data stage; commits nothing
    python -m marin_core.worker --store ROOT --serve          a request per line on standard input, until it closes

Events go to standard output as JSON lines; everything that libraries print goes to standard error.
"""

import dataclasses
import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any

import click

from marin_core.build import BuildOptions, Rank, build, run_rank
from marin_core.errors import MarinError
from marin_core.jobs.ranks import local_ranks
from marin_core.store import ArtifactSpec, Store


@click.command()
@click.option("--store", "root", required=True, help="Root of the store: a path or URL.")
@click.option("--plan", help="Path of one plan in the store.")
@click.option("--serve", is_flag=True, help="Take requests from standard input.")
@click.option("--scratch", default=".", help="Folder for what need not outlive the job.")
@click.option("--checkpoint-every-seconds", type=float)
@click.option("--checkpoint-every-steps", type=int)
@click.option("--ranks", type=click.IntRange(1), default=1, help="Processes that share the items of a data stage.")
@click.option("--phase", help="Run only this rank's items of a phase of a data stage.")
@click.option("--rank", type=click.IntRange(0), default=lambda: os.environ.get("JOB_COMPLETION_INDEX", 0))
@click.option("--world", type=click.IntRange(1), default=1)
@click.option("--lease-token", type=int, help="Token of the lease of the writer that this rank works for.")
def main(
    root: str,
    plan: str | None,
    serve: bool,
    scratch: str,
    phase: str | None,
    rank: int,
    world: int,
    lease_token: int | None,
    **options: Any,
) -> None:
    if serve == (plan is not None):
        raise click.UsageError("give either --plan or --serve")
    if (phase is None) != (lease_token is None):
        raise click.UsageError("--phase and --lease-token go together")
    if rank >= world:
        raise click.UsageError(f"--rank {rank} is not below --world {world}")
    events = _private_stdout()
    try:
        worker = Worker(Store(root), events)
    except MarinError as error:
        _tell(events, {"event": "failed", "error": str(error)})
        sys.exit(1)
    if serve:
        _serve(worker)
    else:
        assert plan is not None
        share = None if phase is None or lease_token is None else Rank(phase, rank, world, lease_token)
        succeeded = worker.run(plan, BuildOptions(Path(scratch), **options), share)
        # Not by way of the interpreter's end, where threads of JAX and TensorStore are known to crash.
        os._exit(0 if succeeded else 1)


class Worker:
    """Builds plans of one store and tells events."""

    def __init__(self, store: Store, events: IO[str]):
        self._store, self._events = store, events

    def run(self, plan: str, options: BuildOptions, rank: Rank | None = None) -> bool:
        """True if the plan's artifact is committed afterwards, or all items of a `rank` are done."""
        try:
            spec = self._store.load_plan(plan)
            self._quiet_libraries(spec)
            if rank is not None:
                run_rank(spec, self._store, rank, options, self._log, self._report)
            else:
                ranks = local_ranks(self._store, options.ranks, self._log, self._report)
                start_ranks = ranks if options.ranks > 1 else None
                build(spec, self._store, options, self._log, self._report, start_ranks)
        except MarinError as error:
            self._tell({"event": "failed", "error": str(error)})
            return False
        except Exception as error:
            traceback.print_exc()
            cause = str(error).strip().splitlines()
            self._tell({"event": "failed", "error": f"{type(error).__name__}: {cause[0] if cause else ''}"})
            return False
        self._tell({"event": "done"})
        return True

    def _log(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)
        self._tell({"event": "log", "message": message})

    def _report(self, progress: Any) -> None:
        self._tell({"event": "progress", "progress": dataclasses.asdict(progress)})

    def _tell(self, event: dict[str, Any]) -> None:
        _tell(self._events, event)

    def _quiet_libraries(self, spec: ArtifactSpec) -> None:
        import logging

        # Levanter compares a cache's metadata, the tokenizer's path in it, by text; we compare fingerprints.
        logging.getLogger("levanter.store.cache").setLevel(logging.ERROR)
        # Each run adds its own log file; in a worker of many runs the earlier ones must go.
        root = logging.getLogger()
        for handler in [h for h in root.handlers if isinstance(h, logging.FileHandler)]:
            root.removeHandler(handler)
            handler.close()
        print(f"--- {spec.label} {spec.fingerprint}", file=sys.stderr, flush=True)


def _tell(events: IO[str], event: dict[str, Any]) -> None:
    events.write(json.dumps(event) + "\n")
    events.flush()


def _serve(worker: Worker) -> None:
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        options = {**request["options"], "scratch": Path(request["options"]["scratch"])}
        worker.run(request["plan"], BuildOptions(**options))


def _read_requests(requests: "queue.Queue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    # The parent closed the pipe or is gone. Nothing that is not committed counts, so there is nothing to tidy.
    os._exit(0)


def _private_stdout() -> IO[str]:
    """The real standard output for events; what anybody prints from now on goes to standard error."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return events


if __name__ == "__main__":
    main()
