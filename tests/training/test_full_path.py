"""One model from its plan to a hub, by the commands of a user: trained in bfloat16 on two devices, killed on the way,
evaluated, exported, published, and read back by those who find it there."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import Artifact, Store
from tests.conftest import REPOSITORY, TINY_PROFILE, LabEnvironment
from tests.publishing.writable_hub import WRITER, WritableHub, running

pytestmark = pytest.mark.slow

KEY = "8e9-d0024"
PROFILE = (
    TINY_PROFILE.read_text()
    .replace('name = "tiny"\nversion = "tiny_v1"', 'name = "wide"\nversion = "wide_v1"\nprecision = "p=f32,c=bfloat16"')
    .replace("[place]\n", '[place]\ncheckpoint_every_steps = 10\nhub = { namespace = "lab", licence = "apache-2.0" }\n')
)


@pytest.fixture
def lab(shards: tuple[LabEnvironment, LabGraph], tmp_path: Path) -> LabEnvironment:
    """A lab that has its data."""
    (tmp_path / "wide.toml").write_text(PROFILE)
    lab = LabEnvironment(tmp_path, tmp_path / "wide.toml")
    shutil.copytree(shards[0].store, lab.store)
    return lab


def variables(lab: LabEnvironment, hub: WritableHub) -> dict[str, str]:
    return lab.variables | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": WRITER,
        "HF_HOME": str(lab.folder / "huggingface"),
    }


def materialize(lab: LabEnvironment, hub: WritableHub, selection: str) -> "subprocess.Popen[str]":
    command = ["dagster", "asset", "materialize", "--select", selection, "--partition", KEY]
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=variables(lab, hub),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill_after_a_checkpoint(job: "subprocess.Popen[str]", lab: LabEnvironment) -> None:
    deadline = time.monotonic() + 240
    while not list(lab.store.glob("checkpoints/delphi/*/checkpoints/step-*/metadata.json")):
        assert job.poll() is None, job.stdout and job.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate()


def test_a_model_is_trained_killed_resumed_evaluated_exported_and_published(
    lab: LabEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(WritableHub()) as hub:
        kill_after_a_checkpoint(materialize(lab, hub, "checkpoints/delphi"), lab)
        assert not list(lab.store.glob("checkpoints/delphi/*/artifact.json"))
        job = materialize(lab, hub, "checkpoints/delphi,evals/delphi,exports/delphi,publish/delphi")
        output, _ = job.communicate(timeout=400)
        assert job.returncode == 0, output
        assert f"resuming checkpoints/delphi [{KEY}] after step" in output

        monkeypatch.setenv("HF_ENDPOINT", hub.url)  # which hub is part of a publication's identity
        graph = LabGraph.of(load_profile(str(lab.profile)))
        store, run = Store(str(lab.store)), graph.cells[KEY]
        trained = store.artifact(run).record.summary
        assert (trained["status"], trained["steps"]) == ("succeeded", run.config["plan"]["steps"])
        assert (trained["hardware"]["count"], trained["attempts"]["died"]) == (2, 1)
        evaluated = {
            result["evaluation"]: result for result in store.artifact(graph.evaluated(run)).read_json("evals.json")
        }
        assert evaluated["perplexity"]["model"]["run"] == run.fingerprint
        export = store.artifact(graph.export(run))
        check = export.read_json("export.json")["check"]
        assert check["max_abs_difference"] <= check["tolerance"]

        repository = store.artifact(graph.publication(run)).record.summary["repository"]
        check_repository(hub, repository, export, evaluated["perplexity"], lab.folder / "snapshot")
        commits = list(hub.model(repository).messages)
        output, _ = materialize(lab, hub, "publish/delphi").communicate(timeout=120)
        assert "Finished execution of run" in output
        assert hub.model(repository).messages == commits


def check_repository(hub: WritableHub, name: str, export: Artifact, perplexity: dict[str, Any], folder: Path) -> None:
    """What a reader of the tag downloads is the export, and its card has the numbers of the evaluation."""
    snapshot_download(name, revision="released", local_dir=folder, endpoint=hub.url, token=WRITER)
    for entry in export.record.files:
        assert (folder / entry.path).read_bytes() == export.read(entry.path)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
    card = (folder / "README.md").read_text()
    assert str(perplexity["metrics"]["macro/bits_per_byte"]["value"]) in card
    assert "license: apache-2.0" in card
