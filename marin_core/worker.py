"""The one entry point that a job runs: read a plan from the store, build its artifact, commit it.

    python -m marin_core.worker --store ROOT --plan PATH      one plan, then exit
    python -m marin_core.worker --store ROOT --plan PATH --job NAME [--world N | --processes N --coordinator HOST:PORT]
                                                              the same in a pod, alone or as one of N
    python -m marin_core.worker --store ROOT --plan PATH --phase NAME --rank R --world N --lease-token T
                                                              one rank of a data stage; commits nothing
    python -m marin_core.worker --store ROOT --serve          a request per line on standard input, until it closes

Exit codes: 0 the artifact is committed; 65 the task found something wrong, and trying again changes nothing; 143 ended
by SIGTERM, with what is done so far kept; 75 the others of a gang did not come; anything else is worth another try.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from marin_core.build import BuildOptions, Rank, build, run_rank
from marin_core.environment import completion_index, pod_name, slice_index
from marin_core.errors import MarinError
from marin_core.gang import Gang, PeersMissing
from marin_core.jobs.events import Events, PodEvents, StreamEvents
from marin_core.jobs.failures import OF_THE_PLACE, failure_of
from marin_core.jobs.gang_build import follow_gang, lead_gang
from marin_core.jobs.parts import Alone, Member, Part, Sharer, gang_member, index_of, stage_share
from marin_core.jobs.ranks import local_ranks
from marin_core.jobs.shared_stage import follow_stage, lead_stage
from marin_core.jobs.spec import EXIT_PEERS_MISSING, EXIT_REFUSED, EXIT_TERMINATED
from marin_core.store import ArtifactSpec, Store
from marin_core.tasks import TASKS
from marin_core.termination import Terminated, end_on_sigterm, termination_deferred
from marin_core.training.tracking import RunPage, run_page, tracking_is_on


@click.command()
@click.option("--store", "root", required=True, help="Root of the store: a path or URL.")
@click.option("--plan", help="Path of one plan in the store.")
@click.option("--serve", is_flag=True, help="Take requests from standard input.")
@click.option("--job", help="Name of the job whose pod this is; events go to the store.")
@click.option("--scratch", default=".", type=click.Path(path_type=Path), help="For what need not outlive the job.")
@click.option("--checkpoint-every-seconds", type=float)
@click.option("--checkpoint-every-steps", type=int)
@click.option("--command", help="What a person typed, for the record.")
@click.option("--dagster-run", help="Dagster run that asked for the artifact, for the record.")
@click.option("--peak-flops", type=float, help="What all chips of the job can do together, in FLOP/s.")
@click.option("--ranks", type=click.IntRange(1), default=1, help="Processes here that share the items of a data stage.")
@click.option("--world", type=click.IntRange(1), default=1, help="Ranks of a data stage that are started apart.")
@click.option("--phase", help="Run only this rank's items of a phase of a data stage.")
@click.option("--rank", type=click.IntRange(0), help="Which of --world; by default JOB_COMPLETION_INDEX.")
@click.option("--lease-token", type=int, help="Token of the lease of the writer that this rank works for.")
@click.option("--processes", type=click.IntRange(1), default=1, help="Processes that train one model together.")
@click.option("--hosts", type=click.IntRange(1), help="Those of them in one slice; by default all.")
@click.option("--coordinator", help="HOST:PORT where process 0 of them listens.")
def main(
    root: str,
    plan: str | None,
    serve: bool,
    job: str | None,
    world: int,
    phase: str | None,
    rank: int | None,
    lease_token: int | None,
    processes: int,
    hosts: int | None,
    coordinator: str | None,
    **options: Any,
) -> None:
    if not serve:
        # Before anything that may take its time: the first process of a container ignores SIGTERM by itself.
        end_on_sigterm()
    if serve == (plan is not None):
        raise click.UsageError("give either --plan or --serve")
    part: Part = Alone()
    try:
        if processes > 1:
            part = gang_member(slice_index(), completion_index(), processes, hosts, coordinator)
        elif phase is not None or lease_token is not None or world > 1:
            part = stage_share(completion_index() if rank is None else rank, world, phase, lease_token)
    except MarinError as error:
        raise click.UsageError(str(error)) from None
    if plan is None:
        _serve(Worker(*_open(root, job, part)))
    try:
        code = _work(root, job, plan, BuildOptions(**options), part)
    except Terminated:
        # Before the store was open, or while an error was being told.
        code = EXIT_TERMINATED
    # Not by way of the interpreter's end, where threads of JAX and TensorStore are known to crash.
    os._exit(code)


def _work(root: str, job: str | None, plan: str, options: BuildOptions, part: Part) -> int:
    """The exit code of one plan, once all of it is told."""
    store, events = _open(root, job, part)
    code = Worker(store, events).run(plan, options, part)
    with termination_deferred():
        events.close()
    return code


class Worker:
    """Builds plans of one store and tells events."""

    def __init__(self, store: Store, events: Events):
        self._store, self._events = store, events

    def run(self, plan: str, options: BuildOptions, part: Part) -> int:
        """Do this process's part of building the plan's artifact. Returns an exit code, 0 if that is done."""
        try:
            spec = self._store.load_plan(plan)
            self._quiet_libraries(spec)
            self._do(spec, replace(options, retries=options.retries + self._events.earlier_attempts()), part)
        except Terminated:
            self._events.log(f"{plan} was ended by SIGTERM; what is done so far is kept")
            return EXIT_TERMINATED
        except MarinError as error:
            self._events.failed(str(error), failure_of(error))
            return 1 if isinstance(error, OF_THE_PLACE) else EXIT_REFUSED
        except Exception as error:
            traceback.print_exc()
            cause = str(error).strip().splitlines()
            self._events.failed(f"{type(error).__name__}: {cause[0] if cause else ''}", failure_of(error))
            return 1
        self._events.done()
        return 0

    def _do(self, spec: ArtifactSpec, options: BuildOptions, part: Part) -> None:
        log, report = self._events.log, self._events.report
        match part:
            case Rank():
                run_rank(spec, self._store, part, options, log, report)
            case Sharer(rank=0):
                lead_stage(spec, self._store, part.world, options, log, report)
            case Sharer():
                follow_stage(spec, self._store, part.rank, part.world, options, log, report)
            case Member():
                # Before it joins: afterwards the others wait with it for whatever the network takes.
                with self._page(spec, options, part) as page:
                    gang = Gang.join(part.index, part.processes, part.coordinator, self._give_up)
                    if gang.leads:
                        lead_gang(spec, self._store, gang, options, log, report, page)
                    else:
                        follow_gang(spec, self._store, gang, options, log)
            case Alone():
                ranks = local_ranks(self._store, options.ranks, log, report) if options.ranks > 1 else None
                with self._page(spec, options, part) as page:
                    build(spec, self._store, options, log, report, ranks, page=page)

    @contextlib.contextmanager
    def _page(self, spec: ArtifactSpec, options: BuildOptions, part: Part) -> Iterator[RunPage | None]:
        """The page of a tracked task, if there are pages and this process is the one to open it."""
        wanted = tracking_is_on() and TASKS[spec.task].tracked and index_of(part) == 0
        if not wanted or self._store.record(spec.name, spec.fingerprint):
            yield None
            return
        with run_page(spec, options.scratch, self._events.log) as page:
            if page and page.url:
                self._events.log(f"W&B page: {page.url}")
                self._events.link("wandb", page.url)
            yield page

    def _give_up(self, error: PeersMissing) -> None:
        """End the process from a thread, while its main thread waits for what will not come."""
        self._events.failed(str(error))
        self._events.close()
        os._exit(EXIT_PEERS_MISSING)

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


def _open(root: str, job: str | None, part: Part) -> tuple[Store, Events]:
    """The store, and whom to tell; ends the process with one line if there is no such store."""
    stream = StreamEvents.on_stdout() if job is None else None
    try:
        store = Store(root)
    except MarinError as error:
        if stream:
            stream.failed(str(error), failure_of(error))
        sys.exit(f"failed: {error}")
    return store, stream or PodEvents(store.objects, job or "", pod_name(), index_of(part))


def _serve(worker: Worker) -> NoReturn:
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        options = {**request["options"], "scratch": Path(request["options"]["scratch"])}
        worker.run(request["plan"], BuildOptions(**options), Alone())


def _read_requests(requests: "queue.Queue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    # The parent closed the pipe or is gone. Nothing that is not committed counts, so there is nothing to tidy.
    os._exit(0)


if __name__ == "__main__":
    main()
