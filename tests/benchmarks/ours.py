"""Our stages as methods for `measuring.py`: a real store, the stage's function, the commit included.

On one core the stage runs in the measured process. On more, ranks share its items: a process for each core, started and
warmed up before the clock.
"""

import importlib
import json
import multiprocessing
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from documents import Set
from measuring import Clock, cpu_seconds, peak_mb, threads
from outputs import write_links
from preparation import TOKENIZER

from marin_core.data.sources.declaration import Curation, FolderOrigin, Layout, Source
from marin_core.data.stages import Phase, Stage, run_items, run_stage
from marin_core.store import ArtifactSpec, Store, Workspace

# What each stage reads, besides what its options say.
INPUTS = {
    "normalize": ("raw",),
    "quality": ("normalized",),
    "near_duplicates": ("normalized", "quality"),
    "contamination": ("normalized", "quality", "near_duplicates"),
    "curate": ("normalized", "quality", "near_duplicates", "contamination"),
    "tokenize": ("curated",),
}
MODULES = {"normalize": "normalization.stage", "curate": "curate", "tokenize": "tokens.shards"}
WRITES = {"normalize": "normalized", "curate": "curated", "tokenize": "tokenized"}
# Imported before the clock; the stages import them when they first use them.
LIBRARIES = ("awkward", "gigatoken", "pyarrow.parquet", "rensa", "scipy.sparse.csgraph", "tensorstore", "tokenizers")


@dataclass(frozen=True)
class Job:
    """A stage over a set of documents. `inputs` names artifacts by role that an earlier job made, as spec JSON; the
    others are the set's own."""

    stage: str
    store: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    tag: str = ""

    @property
    def spec(self) -> ArtifactSpec:
        folder = WRITES.get(self.stage, self.stage)
        return ArtifactSpec(f"{folder}/{self.name}", "benchmark", "1", {"tag": self.tag, **self.options})

    @property
    def module(self) -> str:
        return f"marin_core.data.{MODULES.get(self.stage, f'{self.stage}.stage')}"

    @property
    def source(self) -> Source:
        layout = Layout(format="parquet", id_field="source_id")
        curation = Curation(**self.options.get("curation", {}))
        return Source(self.name, FolderOrigin(self.store), "various", layout, curation)

    def make(self, workspace: Workspace) -> Stage:
        store, documents = Store(self.store), Set(self.store, self.name)
        specs = {role: ArtifactSpec.from_json(spec) for role, spec in self.inputs.items()}
        inputs = [store.artifact(specs.get(role) or documents.spec(role)) for role in INPUTS[self.stage]]
        extra: list[Any] = []
        if self.stage == "near_duplicates":
            from marin_core.data.near_duplicates.config import MinHashConfig

            extra = [MinHashConfig(**self.options.get("minhash", {}))]
        if self.stage == "contamination":
            extra = [{"small": Set(self.store, "small").artifact("normalized")}]
        if self.stage == "tokenize":
            extra = [store.artifact(TOKENIZER), self.options["validation_share"], "document"]
        return getattr(importlib.import_module(self.module), f"{self.stage}_stage")(
            self.source, *inputs, *extra, workspace, lambda line: None
        )


def stage(
    clock: Clock, job: dict[str, Any], warm_up: bool = True, keep: bool = False, links: str | None = None
) -> dict[str, Any]:
    """Build the artifact of a job. Facts: its summary, and its `spec`, to be read if `keep`.

    Before the clock: what the stage imports, and, to `warm_up`, the stage over the set `small`. `links` is where
    near-duplicates are written to in the form of `similarity.py`.
    """
    work = Job(**job, tag=uuid.uuid4().hex)
    warm(job, warm_up)
    ranks = Ranks(job, clock.cores, warm_up) if clock.cores > 1 else None
    store = Store(work.store)
    with clock, store.writer(work.spec) as writer:
        run_phase = None if ranks is None else ranks.phase(work, writer.lease_token)
        summary = run_stage(work.make(writer), writer, run_phase)
        writer.commit(summary)
    if ranks:
        ranks.close()
        clock.cpu_s += ranks.cpu_s
        clock.rss_mb = max(clock.rss_mb, ranks.peak_mb)
    if links:
        write_links(store, work.spec, links)
    if not keep:
        store.fs.rm(store.url(work.spec), recursive=True)
    return {"summary": summary, "spec": work.spec.to_json()}


def warm(job: dict[str, Any], warm_up: bool) -> None:
    for module in (*LIBRARIES, Job(**job).module):
        importlib.import_module(module)
    if not warm_up:
        return
    work = Job(**{**job, "name": "small", "inputs": {}}, tag=uuid.uuid4().hex)
    store = Store(work.store)
    with store.writer(work.spec) as writer:
        run_stage(work.make(writer), writer)
    store.fs.rm(store.url(work.spec), recursive=True)


class Ranks:
    """Processes that share the items of each phase, bound to a core each."""

    def __init__(self, job: dict[str, Any], cores: int, warm_up: bool):
        self.cpu_s = self.peak_mb = 0.0
        os.environ |= threads(1)
        context = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, context) for _ in range(cores)]
        for core, pool in zip(sorted(os.sched_getaffinity(0)), self._pools, strict=True):
            pool.submit(os.sched_setaffinity, 0, [core]).result()
            pool.submit(warm, job, warm_up).result()

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()

    def phase(self, work: Job, token: int) -> Callable[[Phase], None]:
        def run(phase: Phase) -> None:
            world = len(self._pools)
            waiting = [
                pool.submit(rank_items, json.dumps(vars(work)), token, phase.name, rank, world)
                for rank, pool in enumerate(self._pools)
            ]
            for done in waiting:
                cpu, peak = done.result()
                self.cpu_s += cpu
                self.peak_mb = max(self.peak_mb, peak)

        return run


def rank_items(job: str, token: int, phase: str, rank: int, world: int) -> tuple[float, float]:
    """(CPU seconds, peak MB) of one rank's share of a phase."""
    before = cpu_seconds()
    work = Job(**json.loads(job))
    workspace = Store(work.store).join(work.spec, token)
    found = next(found for found in work.make(workspace).phases if found.name == phase)
    run_items(found, workspace, rank=rank, world=world)
    return cpu_seconds() - before, peak_mb()
