"""Uploads: what arrives, what is not sent twice, what readers see meanwhile, and what a refusal says."""

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_core.data.sources.patience import Patience
from marin_core.errors import MarinError
from marin_core.publishing.repository import Repository
from marin_core.publishing.upload import OutgoingFile, Published, publish
from marin_core.store import ArtifactSpec, Store
from tests.data.hub_server import Fault
from tests.publishing.writable_hub import INITIAL, WRITER, WritableHub

NAME = "lab/model"
WEIGHTS = {f"model-{n}.safetensors": random.Random(n).randbytes(size) for n, size in enumerate((250_000, 3000, 4000))}
SMALL = {"config.json": b'{"a": 1}\n', "empty.txt": b""}
FILES = {**WEIGHTS, **SMALL}


def artifact_files(root: str, files: dict[str, bytes], name: str = "exports/test") -> list[OutgoingFile]:
    """A committed artifact's files, as the store has them."""
    store, spec = Store(root), ArtifactSpec(name, "export_checkpoint", "1")
    with store.writer(spec) as writer:
        if not writer.committed:
            for path, data in files.items():
                with writer.open(path) as file:
                    file.write(data)
            writer.commit({})
    return OutgoingFile.of_artifact(store.artifact(spec))


def upload(files: list[OutgoingFile], scratch: Path, *, branch: str = "artifact-1", private: bool = False) -> Published:
    return publish(
        Repository("model", NAME, print, os.environ["HF_ENDPOINT"], Patience(attempts=3, first_wait=0.01)),
        files,
        branch=branch,
        tag="released",
        private=private,
        message="Publish",
        scratch=scratch,
        log=print,
        batch_bytes=5000,
    )


@pytest.fixture
def send(tmp_path: Path) -> Callable[[], Published]:
    return lambda: upload(artifact_files(str(tmp_path / "store"), FILES), tmp_path / "scratch")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_every_file_arrives_at_the_tag_and_at_main(hub: WritableHub, send: Callable[[], Published]) -> None:
    done = send()
    repo = hub.model(NAME)
    assert repo.content("released") == {**INITIAL, **FILES}
    assert repo.content("main") == {**INITIAL, **FILES}
    assert repo.tags == {"released": done.revision} == {"released": repo.branches["artifact-1"]}
    size = sum(map(len, FILES.values()))
    assert done == Published(NAME, f"{hub.url}/{NAME}", done.revision, "released", 5, size, 0)
    assert not repo.private


def test_what_somebody_else_put_there_stays(hub: WritableHub, send: Callable[[], Published]) -> None:
    theirs = {**INITIAL, "README.md": b"# Theirs", "config.json": b"{}"}
    repo = hub.add_repo("model", NAME)
    repo.tags["released"] = released = repo.add_commit("main", dict(theirs), "Release")
    with pytest.raises(MarinError, match=rf"^{hub.url}/{NAME} has files that no lab published .*another namespace"):
        send()
    assert repo.content("main") == theirs
    assert (list(repo.branches), repo.tags) == (["main"], {"released": released})
    assert not hub.arrived


def test_a_repository_that_was_made_empty_is_filled(hub: WritableHub, send: Callable[[], Published]) -> None:
    hub.add_repo("model", NAME)
    send()
    assert hub.model(NAME).content("main") == {**INITIAL, **FILES}


def test_a_reader_gets_the_files_by_the_library(
    hub: WritableHub, send: Callable[[], Published], tmp_path: Path
) -> None:
    from huggingface_hub import snapshot_download

    send()
    for revision in ("released", None):
        folder = Path(snapshot_download(NAME, revision=revision, cache_dir=tmp_path / "cache", endpoint=hub.url))
        assert {path: (folder / path).read_bytes() for path in FILES} == FILES


def test_the_second_time_nothing_is_sent_and_nothing_changes(hub: WritableHub, send: Callable[[], Published]) -> None:
    first = send()
    repo, requests, sent = hub.model(NAME), len(hub.seen), list(hub.arrived)
    commits, views = set(repo.commits), len(repo.views)
    second = send()
    assert (second.revision, second.bytes_uploaded, second.bytes_reused) == (first.revision, 0, first.bytes_uploaded)
    assert hub.arrived == sent
    assert set(repo.commits) == commits
    assert len(repo.views) == views
    changes = [s.path for s in hub.seen[requests:] if s.method != "GET"]
    assert changes == ["/api/repos/create", f"/api/models/{NAME}/branch/artifact-1"]  # both answered: it exists


def test_readers_never_see_half_a_model(hub: WritableHub, tmp_path: Path) -> None:
    old = {"model-0.safetensors": b"old" * 1000, "config.json": b'{"a": 0}\n', "gone.json": b"{}"}
    upload(artifact_files(str(tmp_path / "store"), old, "exports/old"), tmp_path / "scratch")
    repo = hub.model(NAME)
    upload(artifact_files(str(tmp_path / "store"), FILES), tmp_path / "scratch", branch="artifact-2")
    complete = [{path: sha256(data) for path, data in {**INITIAL, **files}.items()} for files in ({}, old, FILES)]
    seen = [files for view in repo.views for files in view.values()]
    assert all(files in complete for files in seen)
    assert repo.content("main") == repo.content("released") == {**INITIAL, **FILES}
    # Between the two, the branch held a mixture of both.
    mixed = [files for sha, files in repo.commits.items() if {"gone.json", "model-1.safetensors"} <= set(files)]
    assert mixed


def test_the_tag_moves_after_all_files_were_listed_back_and_main_last(
    hub: WritableHub, send: Callable[[], Published]
) -> None:
    send()
    repo = hub.model(NAME)
    assert [branch for branch, _ in repo.messages] == ["main", *["artifact-1"] * 4, "main"]
    tagged = next(n for n, s in enumerate(hub.seen) if s.method == "POST" and "/tag/" in s.path)
    commits = [n for n, s in enumerate(hub.seen) if "/commit/artifact-1" in s.path]
    listed = [n for n, s in enumerate(hub.seen) if "/tree/" in s.path]
    assert any(commits[-1] < n < tagged for n in listed)
    moved = next(n for n, s in enumerate(hub.seen) if "/commit/main" in s.path)
    assert tagged < moved < listed[-1]


def test_what_a_killed_publication_had_sent_is_not_sent_again(hub: WritableHub, tmp_path: Path) -> None:
    weights = {path: sha256(data) for path, data in WEIGHTS.items()}
    hub.faults[weights["model-2.safetensors"]] = [Fault(stall_at=0)]
    artifact_files(str(tmp_path / "store"), FILES)
    code = (
        "import sys; from pathlib import Path; from tests.publishing.test_upload import *; "
        "root = Path(sys.argv[1]); upload(artifact_files(str(root / 'store'), FILES), root / 'scratch')"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
    assert hub.stalled.wait(60)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    repo = hub.model(NAME)
    assert repo.content("main") == INITIAL
    assert not repo.tags
    assert hub.arrived == [weights["model-0.safetensors"], weights["model-1.safetensors"]]
    hub.released.set()
    hub.arrived.clear()
    done = upload(artifact_files(str(tmp_path / "store"), FILES), tmp_path / "scratch")
    # The held request's own bytes may have reached the storage when it was let go.
    assert set(hub.arrived) <= {weights["model-2.safetensors"]}
    kept = ("config.json", "empty.txt", "model-0.safetensors", "model-1.safetensors")
    assert done.bytes_reused == sum(len(FILES[path]) for path in kept)
    assert repo.content("released") == repo.content("main") == {**INITIAL, **FILES}
    assert not list((tmp_path / "scratch").rglob("*.safetensors"))


@pytest.mark.parametrize("ending", ["/commit/artifact-1", "/complete", "/tag/released", "/commit/main"])
def test_a_lost_connection_is_tried_again(hub: WritableHub, send: Callable[[], Published], ending: str) -> None:
    hub.faults[ending] = [Fault(cut_at=0)]
    send()
    assert hub.model(NAME).content("main") == {**INITIAL, **FILES}


def test_a_hub_that_asks_to_wait_is_waited_for(hub: WritableHub, send: Callable[[], Published]) -> None:
    hub.faults["/commit/main"] = [Fault(429, {"Retry-After": "1"})]
    send()
    first, second = hub.requests("POST", "/commit/main$")
    assert second.at - first.at >= 1
    assert hub.model(NAME).content("main") == {**INITIAL, **FILES}


def test_main_that_someone_else_changes_meanwhile_is_looked_at_again(
    hub: WritableHub, send: Callable[[], Published]
) -> None:
    hub.faults["/commit/main"] = [Fault(412)]
    send()
    assert len(hub.requests("POST", "/commit/main$")) == 2
    assert hub.model(NAME).content("main") == {**INITIAL, **FILES}


def test_a_hub_that_lists_another_hash_is_found_out_before_the_tag(
    hub: WritableHub, send: Callable[[], Published]
) -> None:
    wrong = sha256(WEIGHTS["model-1.safetensors"])
    hub.spoils.add(wrong)
    with pytest.raises(MarinError, match=rf"as model-1\.safetensors, expected was 3000 bytes .*{wrong}") as refused:
        send()
    assert "\n" not in str(refused.value)
    repo = hub.model(NAME)
    assert not repo.tags
    assert repo.content("main") == INITIAL


def test_a_file_damaged_here_is_not_sent(hub: WritableHub, tmp_path: Path) -> None:
    files = artifact_files(str(tmp_path / "store"), FILES)
    damaged = next(file.local for file in files if file.path == "model-2.safetensors")
    assert damaged
    damaged.write_bytes(b"x" * 4000)
    with pytest.raises(MarinError, match=r"model-2\.safetensors is damaged"):
        upload(files, tmp_path / "scratch")
    assert sha256(b"x" * 4000) not in hub.arrived
    assert not hub.model(NAME).tags


def test_files_of_an_object_store_pass_through_scratch_and_leave_nothing(
    hub: WritableHub, gcs_root: str, tmp_path: Path
) -> None:
    upload(artifact_files(gcs_root, FILES), tmp_path / "scratch")
    assert hub.model(NAME).content("released") == {**INITIAL, **FILES}
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("token", "message"),
    [
        pytest.param("", r"there is no token for http://127.*; set HF_TOKEN .*`hf auth login`", id="none"),
        pytest.param("hf_old", r"does not accept the token .*; set HF_TOKEN to a valid one", id="not accepted"),
        pytest.param("hf_other", r"may not write there .*write access to lab, or set another namespace", id="other's"),
    ],
)
def test_who_may_not_write_is_told_what_to_do(
    hub: WritableHub, send: Callable[[], Published], monkeypatch: pytest.MonkeyPatch, token: str, message: str
) -> None:
    hub.tokens["hf_other"] = ["others"]
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    else:
        monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(MarinError, match=message) as refused:
        send()
    assert "\n" not in str(refused.value)
    assert not hub.repos


def test_a_hub_that_stays_ill_is_given_up(hub: WritableHub, send: Callable[[], Published]) -> None:
    hub.faults["/refs"] = [Fault(503)] * 100
    with pytest.raises(MarinError, match=r"the hub answers 503; gave up after 3 tries.*run the same command again"):
        send()
    assert hub.model(NAME).content("main") == INITIAL


def test_what_is_to_be_private_does_not_go_to_a_public_repository(hub: WritableHub, tmp_path: Path) -> None:
    hub.add_repo("model", NAME)
    with pytest.raises(MarinError, match="exists and is public, but it is to be private"):
        upload(artifact_files(str(tmp_path / "store"), FILES), tmp_path / "scratch", private=True)
    assert not hub.arrived
    del hub.repos["model", NAME]
    upload(artifact_files(str(tmp_path / "store"), FILES), tmp_path / "scratch", private=True)
    assert hub.model(NAME).private


def test_offline_mode_is_named(
    hub: WritableHub, send: Callable[[], Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MarinError, match="HF_HUB_OFFLINE is set; unset it"):
        send()
    assert not hub.seen


def test_no_network_is_one_line(send: Callable[[], Published], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with pytest.raises(MarinError, match=r"127\.0\.0\.1:9 cannot be reached") as refused:
        send()
    assert "\n" not in str(refused.value)
