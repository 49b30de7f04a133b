"""Which runs have pages at Weights & Biases, and what becomes of the pages of real ones."""

import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from marin_assets.metadata import artifact_metadata, job_metadata
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.jobs import JobSpec, JobState
from marin_core.jobs.events import StreamEvents
from marin_core.jobs.kubernetes.cluster import JOBS
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.sight import Terms
from marin_core.jobs.local import LocalJob
from marin_core.jobs.messages import MessageReader, MessageWriter
from marin_core.jobs.process import WorkerProcess
from marin_core.jobs.spec import EXIT_TERMINATED
from marin_core.profile import load_profile
from marin_core.profile.declaration import Place
from marin_core.recipes import format_budget
from marin_core.store import Store, open_objects
from marin_core.training.tracking import page_id
from tests.conftest import REPOSITORY, LabEnvironment
from tests.training.runs import (
    EVALUATED,
    copied_store,
    curve,
    finish,
    kill_at_step,
    run_spec,
    signal_at_step,
    start_worker,
    worker_command,
)
from tests.training.test_gang import free_port
from tests.training.wandb_pages import OFFLINE, SPEC, UNREACHABLE, pages
from tests.training.wandb_server import wandb_server

URL = "https://tracker.example.com/lab/runs/1"


@pytest.fixture
def unsaid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing in the environment says where anything is."""
    for name in ("MARIN_STORE", "MARIN_IMAGE", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MARIN_STATE", str(tmp_path / "state"))


def place(folder: Path, base: str, lines: str = "") -> Place:
    (folder / "mine.toml").write_text(f'extends = "{base}"\n[place]\n{lines}')
    return load_profile(str(folder / "mine.toml")).place


def test_a_profile_says_whether_runs_are_tracked(unsaid: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_profile("laptop").place.tracking_variables == {"WANDB_MODE": "offline", "WANDB_PROJECT": "marin"}
    online = place(tmp_path, "laptop", 'tracking = "online"\nwandb_project = "delphi"')
    assert online.tracking_variables == {"WANDB_MODE": "online", "WANDB_PROJECT": "delphi"}
    assert place(tmp_path, "laptop", 'tracking = "off"').tracking_variables["WANDB_MODE"] == "disabled"
    on_cluster = 'tracking = "online"\nstore = "gs://b/lab"\n[place.kubernetes]\nimage = "x"\nenv.WANDB_ENTITY = "team"'
    pods = place(tmp_path, "gke-smoke", on_cluster).kubernetes
    assert pods and pods.env == {"WANDB_MODE": "online", "WANDB_PROJECT": "marin", "WANDB_ENTITY": "team"}
    # What is exported wins.
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    offline = place(tmp_path, "laptop", 'tracking = "online"\nwandb_project = "delphi"')
    assert (offline.tracking, offline.wandb_project) == ("offline", "mine")
    monkeypatch.setenv("WANDB_MODE", "of")
    with pytest.raises(MarinError, match=r"WANDB_MODE is 'of'; set it to online, offline or disabled$"):
        load_profile("laptop")


@pytest.mark.parametrize("project", ["", "a/b"])
def test_a_project_that_wandb_refuses_is_told_with_its_line(unsaid: None, tmp_path: Path, project: str) -> None:
    with pytest.raises(MarinError, match=rf"mine.toml, line 3: wandb_project is '{project}'; give 1 to 128 characters"):
        place(tmp_path, "laptop", f'wandb_project = "{project}"')


def test_workers_are_told_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    worker = WorkerProcess(str(tmp_path), tmp_path, 1, 1, {"WANDB_MODE": "offline", "WANDB_PROJECT": "marin"})
    try:
        told = Path(f"/proc/{worker._process.pid}/environ").read_text().split("\0")
        assert {"WANDB_MODE=offline", "WANDB_PROJECT=mine"} <= set(told)
    finally:
        worker.kill()


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


@pytest.mark.slow
def test_a_run_has_one_page_with_each_of_its_steps(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = copied_store(lab, "tracked")
    with wandb_server() as server:
        variables = server.variables
        told = signal_at_step(start_worker(lab, store, spec, 5, **variables), 20, signal.SIGTERM)
        finish(start_worker(lab, store, spec, 5, **variables))
    assert told >= 20
    (run,) = server.runs.values()
    assert (run.project, run.settings["displayName"]) == ("lab", spec.label)
    assert list(run.settings["tags"]) == [spec.config["plan"]["recipe"], format_budget(spec.config["plan"]["flops"])]
    rows = curve(store, spec)
    assert rows == curve(uninterrupted, spec)
    shown = curve_of(run.history)
    assert set(shown) <= set(rows) and shown == sorted(shown)
    assert [row["step"] for row in run.history if "eval/loss" in row] == EVALUATED
    steps = [row for row in run.history if "loss" in row]
    assert all(row["tokens_per_second"] > 0 and row["seconds"] > 0 and "adam_lr" in row for row in steps)
    record = store.artifact(spec).record
    assert steps[-1].items() >= record.summary["evals"].items()
    assert (run.exit_codes, run.summary["status"]) == ([EXIT_TERMINATED, 0], "succeeded")
    assert run.summary["eval_loss"] == record.summary["eval_loss"]
    url = f"{server.url}/team/lab/runs/{page_id(spec)}"
    assert record.summary["wandb_url"] == url
    assert artifact_metadata(record, store.url(spec), reused=True)["wandb_url"] == dg.MetadataValue.url(url)
    assert record.content == uninterrupted.artifact(spec).record.content


@pytest.mark.slow
def test_a_run_neither_needs_its_page_nor_loses_it(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = copied_store(lab, "untracked")
    kill_at_step(start_worker(lab, store, spec, 5, **OFFLINE), 20)
    messages = finish(start_worker(lab, store, spec, 5, **UNREACHABLE))
    (message,) = [message for message in messages if "W&B" in message]
    assert message.startswith("the W&B page is kept offline: ") and "connection refused" in message
    record = store.artifact(spec).record
    assert record.summary["wandb_offline"] == "wandb" and "wandb_url" not in record.summary
    assert record.content == uninterrupted.artifact(spec).record.content
    # What the killed one wrote is lost with its machine; what it trained was shown again.
    (page,) = pages(Path(store.url(spec)))
    shown, rows = curve_of(page.rows), curve(store, spec)
    assert shown[:15] == rows[:15] and set(shown) <= set(rows) and shown[-1] == rows[-1]
    assert [row["step"] for row in page.rows if "eval/loss" in row] == EVALUATED
    assert [file.path.split("/")[0] for file in record.files].count("wandb") == 1


def curve_of(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str, str]]:
    """As `curve` has a run's own record of itself."""
    shown = [row for row in rows if "loss" in row]
    return [(row["step"], float(row["loss"]).hex(), float(row["learning_rate"]).hex()) for row in shown]
