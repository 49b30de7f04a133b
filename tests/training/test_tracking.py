"""A run's page at Weights & Biases: complete, one per attempt, and never in the way of the run."""

import contextlib
import io
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

from marin_assets.metadata import artifact_metadata, job_metadata
from marin_core.graph import LabGraph
from marin_core.jobs import JobSpec, JobState
from marin_core.jobs.events import StreamEvents
from marin_core.jobs.kubernetes.cluster import JOBS
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.sight import Terms
from marin_core.jobs.local import LocalJob
from marin_core.jobs.messages import MessageReader, MessageWriter
from marin_core.jobs.spec import EXIT_TERMINATED
from marin_core.recipes import format_budget
from marin_core.store import ArtifactSpec, Store, open_objects
from marin_core.termination import Terminated
from marin_core.training.tracking import RunPage, run_page
from tests.conftest import REPOSITORY, LabEnvironment
from tests.training.runs import (
    CELL,
    copied_store,
    curve,
    finish,
    signal_at_step,
    start_worker,
    worker_command,
    worker_variables,
)
from tests.training.test_gang import free_port

SPEC = ArtifactSpec(
    "checkpoints/delphi",
    "train",
    "1",
    {"plan": {"recipe": "delphi", "flops": 3e18, "steps": 3}},
    partition="3e18-d0512",
)
OFFLINE = {"WANDB_PROJECT": "lab", "WANDB_MODE": "offline"}
# Nobody listens at this port. The key has the form of one.
UNREACHABLE = {
    "WANDB_PROJECT": "lab",
    "WANDB_MODE": "online",
    "WANDB_BASE_URL": "http://127.0.0.1:9",
    "WANDB_API_KEY": 40 * "0",
    "WANDB_INIT_TIMEOUT": "2",
}
URL = "https://tracker.example.com/lab/runs/1"


def records(file: Path) -> Iterator[Record]:
    """What a `.wandb` file holds: protocol buffers in the format of LevelDB's logs, after a header of 7 bytes."""
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + 7 + length > len(data):
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # complete, or the last of several parts
            yield Record.FromString(whole)
            whole = b""


def complete(file: Path) -> list[Record]:
    """All records; wandb's own process may write the last of them after a run has finished."""
    deadline = time.monotonic() + 20
    while not any(record.HasField("exit") for record in records(file)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return list(records(file))


class Page:
    """An attempt's page as wandb kept it on disk."""

    def __init__(self, file: Path):
        read = complete(file)
        (self.run,) = [record.run for record in read if record.HasField("run")]
        self.config = {item.key: json.loads(item.value_json) for item in self.run.config.update}
        rows = [record.history for record in read if record.HasField("history")]
        self.rows = [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in row.item} for row in rows]
        updates = [item for record in read if record.HasField("summary") for item in record.summary.update]
        self.summary = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in updates}
        self.exit_codes = [record.exit.exit_code for record in read if record.HasField("exit")]
        self.is_preempting = any(record.HasField("preempting") for record in read)


def pages(scratch: Path) -> list[Page]:
    """In the order in which they were opened."""
    return [Page(file) for file in sorted(scratch.glob("wandb/offline-run-*/*.wandb"), key=lambda f: f.stat().st_mtime)]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """wandb reads its variables once in the life of a process."""
    yield
    wandb.teardown()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)


def end_in(outcome: str, page: RunPage) -> None:
    """A run of three steps, as far as the page hears of it."""
    for step in range(3):
        page.show(step, {"loss": math.nan if step == 2 and outcome == "diverged" else 1 / (step + 1)})
        page.show(step, {"eval/loss": 2.0})
    if outcome == "failed":
        raise OSError("disk full")
    if outcome == "preempted":
        raise Terminated
    page.summarize({"status": outcome, "steps": 3})


@pytest.mark.parametrize(("outcome", "code"), [("succeeded", 0), ("diverged", 1), ("failed", 1), ("preempted", 143)])
def test_a_page_tells_how_the_attempt_ended(offline: None, tmp_path: Path, outcome: str, code: int) -> None:
    said: list[str] = []
    with contextlib.suppress(OSError, Terminated), run_page(SPEC, 3, tmp_path / "new", said.append) as page:
        assert page
        end_in(outcome, page)
    (page,) = pages(tmp_path / "new")
    assert (page.run.run_group, page.run.display_name) == (SPEC.fingerprint, "checkpoints/delphi [3e18-d0512]")
    assert page.run.run_id.startswith(f"{SPEC.fingerprint}-3-")
    assert list(page.run.tags) == ["delphi", "3e18"]
    assert [(row["_step"], row["eval/loss"]) for row in page.rows] == [(0, 2.0), (1, 2.0), (2, 2.0)]
    assert (page.exit_codes, page.summary["status"]) == ([code], outcome)
    assert page.is_preempting == (outcome == "preempted")
    assert said == []


def test_a_page_that_does_not_open_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in UNREACHABLE.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    began = time.monotonic()
    with run_page(SPEC, 0, tmp_path, said.append) as page:
        assert page is None
    assert time.monotonic() - began < 20
    (line,) = said
    assert line.startswith("no W&B page: ") and "connection refused" in line and "\n" not in line


def test_a_page_that_is_lost_is_one_line_too(offline: None, tmp_path: Path) -> None:
    said: list[str] = []
    with run_page(SPEC, 0, tmp_path, said.append) as page:
        assert page
        page._run.finish()  # as if wandb had ended it
        end_in("succeeded", page)
    (line,) = said
    assert line.startswith("the W&B page is not complete: ")


def test_followers_get_the_link_to_a_page(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    writer = MessageWriter(objects, "job", "pod")
    writer.link("wandb", URL)
    assert writer.close()
    terms = Terms(max_failures=1, max_preemptions=1, pools=("cpu-1",), region="us-east5", namespace="lab")
    on_cluster = KubernetesJob(JobSpec(SPEC, ("cpu-1",)), JOBS, terms, lambda job: None)
    on_cluster.link({"log": "gs://lab/log"})
    on_cluster.hear("pod", MessageReader(objects, "job", "pod"))
    assert on_cluster.status().links == {"log": "gs://lab/log", "wandb": URL}

    stream = io.StringIO()
    StreamEvents(stream).link("wandb", URL)
    here = LocalJob(JobSpec(SPEC, ("cpu-1",)))
    here.hear(json.loads(stream.getvalue()))
    here.set(JobState.SUCCEEDED)
    assert here.status().links == {"wandb": URL}
    assert job_metadata(here.status())["wandb"] == dg.MetadataValue.url(URL)


@pytest.mark.slow
def test_the_leader_of_a_gang_opens_the_page_before_it_joins(tmp_path: Path) -> None:
    store, scratch = Store(str(tmp_path / "store")), tmp_path / "scratch"
    # The other process never comes.
    gang = ["--job", "job", "--processes", "2", "--coordinator", f"127.0.0.1:{free_port()}", "--scratch", str(scratch)]
    leader = subprocess.Popen(
        [*worker_command(store, SPEC), *gang],
        cwd=REPOSITORY,
        env=os.environ | OFFLINE | {"JAX_PLATFORMS": "cpu", "JOB_COMPLETION_INDEX": "0"},
    )
    try:
        deadline = time.monotonic() + 60
        while not list(scratch.glob("wandb/offline-run-*/*.wandb")):
            assert leader.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        leader.kill()
        leader.wait()


# The second attempt, with the page's URL that only a server would give it.
SECOND_ATTEMPT = """
import os, sys
from pathlib import Path
from marin_core.build import BuildOptions, build
from marin_core.store import Store
from marin_core.training.tracking import run_page
root, plan, scratch, url = sys.argv[1:]
store = Store(root)
spec = store.load_plan(plan)
with run_page(spec, 1, Path(scratch), print) as page:
    page.url = url
    build(spec, store, BuildOptions(Path(scratch)), print, page=page)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.slow
def test_each_attempt_has_a_page_with_each_of_its_steps(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = graph.cells[CELL]
    store = copied_store(lab, "tracked")
    scratch = lab.folder / "scratch"
    told = signal_at_step(start_worker(lab, store, spec, 5, **OFFLINE), 20, signal.SIGTERM)
    second_attempt = [sys.executable, "-c", SECOND_ATTEMPT, store.root, store.save_plan(spec), str(scratch), URL]
    result = subprocess.run(
        second_attempt, cwd=REPOSITORY, env=worker_variables(lab) | OFFLINE, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr

    first, second = pages(scratch)
    assert told >= 20
    for attempt, page in enumerate((first, second)):
        assert page.run.run_id.startswith(f"{spec.fingerprint}-{attempt}-")
        assert (page.run.project, page.run.run_group, page.run.display_name) == ("lab", spec.fingerprint, spec.label)
        assert list(page.run.tags) == [spec.config["plan"]["recipe"], format_budget(spec.config["plan"]["flops"])]
        assert page.config.items() >= dict(spec.config["plan"]).items()
        assert all(row["tokens_per_second"] > 0 and row["seconds"] > 0 and "adam_lr" in row for row in page.rows)
    rows = curve(store, spec)
    assert curve_of(first) == rows[:told]
    assert curve_of(second) == rows[told:]
    assert (first.exit_codes, first.summary["status"]) == ([EXIT_TERMINATED], "preempted")
    assert (second.exit_codes, second.summary["status"]) == ([0], "succeeded")

    record = store.artifact(spec).record
    assert second.rows[-1].items() >= record.summary["evals"].items()
    assert second.summary["eval_loss"] == record.summary["eval_loss"]
    assert record.summary["wandb_url"] == URL
    assert artifact_metadata(record, store.url(spec), reused=True)["wandb_url"] == dg.MetadataValue.url(URL)
    assert rows == curve(uninterrupted, spec)
    assert record.content == uninterrupted.artifact(spec).record.content


def curve_of(page: Page) -> list[tuple[int, str, str]]:
    return [(row["_step"], float(row["loss"]).hex(), float(row["learning_rate"]).hex()) for row in page.rows]


@pytest.mark.slow
def test_a_run_does_not_need_its_page(shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store) -> None:
    lab, graph = shards
    spec = graph.cells[CELL]
    store = copied_store(lab, "untracked")
    messages = finish(start_worker(lab, store, spec, 5, **UNREACHABLE))
    assert len([message for message in messages if "W&B" in message]) == 1
    assert any(message.startswith("no W&B page: ") and "connection refused" in message for message in messages)
    assert "wandb_url" not in store.artifact(spec).record.summary
    assert store.artifact(spec).record.content == uninterrupted.artifact(spec).record.content
