"""A run's page at Weights & Biases: complete, one for all attempts, and never in the way of the run."""

import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wandb

from marin_core.store import Store
from marin_core.termination import Terminated
from marin_core.training import page as page_module
from marin_core.training import tracking
from marin_core.training.page import RunPage
from marin_core.training.tracking import page_id, run_page, tracking_is_on
from tests.conftest import BIN, REPOSITORY
from tests.training.wandb_pages import OFFLINE, SPEC, UNREACHABLE, Page, pages
from tests.training.wandb_server import WandbServer, wandb_server


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """wandb reads its variables once in the life of its own process."""
    yield
    with contextlib.suppress(ConnectionError):  # a test killed it
        wandb.teardown()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A W&B server that runs of this process are sent to."""
    with wandb_server() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def kept(store: Store) -> list[Page]:
    return pages(Path(store.url(SPEC)))


def row(step: int) -> dict[str, Any]:
    """As the log of metrics keeps it."""
    return {"step": step, "loss": 1 / (step + 1), "evals": {"eval/loss": 2.0}}


def train(page: RunPage, steps: Sequence[int], outcome: str = "succeeded") -> None:
    """A run of these steps, as far as its page hears of it."""
    for step in steps:
        loss = math.nan if step == steps[-1] and outcome == "diverged" else row(step)["loss"]
        page.show(step, {"loss": loss})
        page.show(step, row(step)["evals"])
    if outcome == "failed":
        raise OSError("disk full")
    if outcome == "preempted":
        raise Terminated
    page.summarize({"status": outcome, "steps": 3})


def attempt(
    store: Store, scratch: Path, steps: Sequence[int], outcome: str = "succeeded", after: Sequence[int] = ()
) -> tuple[RunPage, list[str]]:
    """An attempt that ran `steps` after those of earlier ones that were kept; its page, and what it said."""
    said: list[str] = []
    opened: list[RunPage] = []
    with contextlib.suppress(OSError, Terminated), run_page(SPEC, scratch, said.append) as page:
        assert page
        opened.append(page)
        with store.writer(SPEC, resumable=True) as writer, page.kept_in(writer, [row(step) for step in after]):
            train(page, steps, outcome)
    return opened[0], said


def steps_of(page: Page) -> list[int]:
    return [row["step"] for row in page.rows]


@pytest.mark.parametrize(("outcome", "code"), [("succeeded", 0), ("diverged", 1), ("failed", 1), ("preempted", 143)])
def test_a_page_tells_how_the_attempt_ended(
    offline: None, store: Store, tmp_path: Path, outcome: str, code: int
) -> None:
    opened, said = attempt(store, tmp_path / "new", range(3), outcome)
    (page,) = kept(store)
    assert (page.run.run_id, page.run.project) == (page_id(SPEC), "lab")
    assert (page.run.run_group, page.run.display_name) == ("checkpoints/delphi", "checkpoints/delphi [3e18-d0512]")
    assert list(page.run.tags) == ["delphi", "3e18"]
    assert page.config["steps"] == 3 and page.config["fingerprint"] == SPEC.fingerprint
    assert [(row["step"], row["eval/loss"]) for row in page.rows] == [(0, 2.0), (1, 2.0), (2, 2.0)]
    assert (page.exit_codes, page.summary["status"]) == ([code], outcome)
    assert page.is_preempting == (outcome == "preempted")
    assert opened.links == {"wandb_offline": "wandb"}
    assert not list(tmp_path.glob("new/wandb/offline-run-*"))
    assert said == []


def test_a_page_has_an_id_of_its_own() -> None:
    others = [replace(SPEC, name="checkpoints/other"), replace(SPEC, config={"plan": {"steps": 4}})]
    assert page_id(SPEC) == page_id(replace(SPEC)) and len({page_id(spec) for spec in [SPEC, *others]}) == 3


def test_attempts_go_on_with_the_page_at_the_server(server: WandbServer, store: Store, tmp_path: Path) -> None:
    first, said = attempt(store, tmp_path, [0, 1, 2], "preempted")
    # The newest checkpoint turned out to be damaged.
    second, said_then = attempt(store, tmp_path, [2, 3], after=[0, 1])
    run = server.runs[page_id(SPEC)]
    assert list(server.runs) == [page_id(SPEC)]
    assert run.curve("loss") == [(step, 1 / (step + 1)) for step in (0, 1, 2, 2, 3)]
    assert (run.exit_codes, run.summary["status"]) == ([143, 0], "succeeded")
    assert first.links == second.links == {"wandb_url": f"{server.url}/team/lab/runs/{page_id(SPEC)}"}
    assert said == said_then == []


@pytest.mark.parametrize("place", ["server", "offline"])
def test_what_a_killed_attempt_did_not_show_is_made_up_for(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path, place: str
) -> None:
    server = request.getfixturevalue(place)
    attempt(store, tmp_path, [0, 1], "preempted")
    # One that was killed in between got to step 3, and showed nobody.
    attempt(store, tmp_path, [4], after=[0, 1, 2, 3])
    rows = server.runs[page_id(SPEC)].history if server else [row for page in kept(store) for row in page.rows]
    assert [(row["step"], row["loss"], row["eval/loss"]) for row in rows] == [(s, 1 / (s + 1), 2.0) for s in range(5)]


def test_an_attempt_without_steps_has_a_page_only_if_it_ends_the_run(
    offline: None, store: Store, tmp_path: Path
) -> None:
    attempt(store, tmp_path, [0, 1], "preempted")
    failed, said = attempt(store, tmp_path, [], "failed", after=[0, 1])
    assert (len(kept(store)), failed.links) == (1, {"wandb_offline": "wandb"})
    ended, said_then = attempt(store, tmp_path, [], after=[0, 1])
    _, last = kept(store)
    assert (last.rows, last.summary["status"], ended.links) == ([], "succeeded", {"wandb_offline": "wandb"})
    assert said == said_then == []
    assert not list(tmp_path.glob("wandb/offline-run-*"))


def test_a_fast_run_shows_its_evaluations_and_its_ends(offline: None, store: Store, tmp_path: Path) -> None:
    with run_page(SPEC, tmp_path, print) as page, store.writer(SPEC) as writer:
        assert page
        with page.kept_in(writer, []):
            for step in range(200):
                page.show(step, {"loss": 1.0} | ({"eval/loss": 2.0} if step in (50, 100) else {}))
    (kept_page,) = kept(store)
    assert steps_of(kept_page) == [0, 50, 100, 199]


def test_pages_that_were_kept_are_uploaded_later(offline: None, store: Store, tmp_path: Path) -> None:
    attempt(store, tmp_path, [0, 1, 2], "preempted")
    page, _ = attempt(store, tmp_path, [2, 3], after=[0, 1])
    assert len(kept(store)) == 2
    with wandb_server() as server:
        sync = [str(BIN / "wandb"), "sync", f"{store.url(SPEC)}/{page.links['wandb_offline']}"]
        variables = os.environ | server.variables
        result = subprocess.run(sync, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 0 and "ERROR" not in result.stderr, result.stderr
        run = server.runs[page_id(SPEC)]
    assert run.curve("loss") == [(step, 1 / (step + 1)) for step in (0, 1, 2, 2, 3)]
    assert (run.exit_codes, run.summary["status"]) == ([143, 0], "succeeded")
    assert (run.project, run.settings["displayName"]) == ("lab", SPEC.label)


def test_a_page_that_was_deleted_at_the_server_is_followed_by_another(
    server: WandbServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_FIRST_TRY_SECONDS", 1.0)
    server.deleted.add(page_id(SPEC))
    attempt(store, tmp_path, [0, 1], "preempted")
    page, said = attempt(store, tmp_path, [2], after=[0, 1])
    (run,) = server.runs.values()
    assert run.curve("loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert page.url == f"{server.url}/team/lab/runs/{page_id(SPEC)}-2"
    assert said == []


@pytest.mark.parametrize("trouble", ["nobody listens", "no answer", "the key is refused"])
def test_a_page_that_does_not_open_is_kept_offline(
    server: WandbServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    if trouble == "nobody listens":
        monkeypatch.setenv("WANDB_BASE_URL", UNREACHABLE["WANDB_BASE_URL"])
    elif trouble == "no answer":
        server.answers.clear()
    else:
        server.accepts_keys = False
    began = time.monotonic()
    opened, (line,) = attempt(store, tmp_path, range(3))
    assert time.monotonic() - began < 15
    assert line.startswith("the W&B page is kept offline: ") and "\n" not in line
    assert opened.url is None and steps_of(kept(store)[0]) == [0, 1, 2]


def test_a_mode_that_wandb_does_not_have_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "onlin")
    assert tracking_is_on()
    said: list[str] = []
    with run_page(SPEC, tmp_path, said.append) as page:
        assert page is None
    assert said == ["no W&B page: WANDB_MODE is 'onlin'; set it to online, offline or disabled"]


def test_a_server_that_goes_away_holds_up_nobody(
    server: WandbServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "FINISH_SECONDS", 2.0)
    monkeypatch.setattr(tracking, "_MARGIN_SECONDS", 1.0)
    said: list[str] = []
    with run_page(SPEC, tmp_path, said.append) as page:
        assert page
        server.answers.clear()
        began = time.monotonic()
        with store.writer(SPEC) as writer, page.kept_in(writer, []):
            train(page, range(1000))
        assert time.monotonic() - began < 1
    assert time.monotonic() - began < 5
    (line,) = said
    assert line.startswith("the W&B page is not complete: ")


def test_a_page_that_is_lost_is_one_line_too(offline: None, store: Store, tmp_path: Path) -> None:
    said: list[str] = []
    with run_page(SPEC, tmp_path, said.append) as page:
        assert page
        with store.writer(SPEC) as writer, page.kept_in(writer, []):
            page._run.finish()  # as if wandb had ended it
            train(page, range(3))
    (line,) = said
    assert line.startswith("the W&B page is not complete: ")


def test_a_stuck_and_a_dead_process_of_wandb_hold_up_nobody(
    offline: None, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "FINISH_SECONDS", 1.0)
    said: list[str] = []
    with run_page(SPEC, tmp_path, said.append) as page:
        assert page
        process = int(subprocess.check_output(["pgrep", "-P", str(os.getpid()), "wandb-core"]))
        os.kill(process, signal.SIGSTOP)
        began = time.monotonic()
        with store.writer(SPEC) as writer, page.kept_in(writer, []):
            train(page, range(20_000))
        assert time.monotonic() - began < 4
    (line,) = said
    assert line.startswith("the W&B page is not complete: ") and page.links == {}
    os.kill(process, signal.SIGKILL)
    # The same worker's next run.
    _, said = attempt(store, tmp_path, range(3))
    assert said == [] and steps_of(kept(store)[0]) == [0, 1, 2]


# Prints what became of the page, what was said, and whether it took long.
ON_A_FULL_DISK = """
import json, sys, time
from pathlib import Path
from marin_core.store import ArtifactSpec, Store
from marin_core.training import page, tracking
page._WRITTEN_SECONDS = 1.0
spec, said, began = ArtifactSpec.from_json(json.loads(sys.argv[1])), [], time.monotonic()
with tracking.run_page(spec, Path(sys.argv[2]), said.append) as page, Store(sys.argv[3]).writer(spec) as writer:
    with page.kept_in(writer, []):
        for step in range(2000):
            page.show(step, {"loss": 1.0, "eval/loss": 1.0})
print(page.links, said, time.monotonic() - began < 15)
"""


def test_a_full_disk_costs_the_page_only(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=64k tmpfs {small} && "
    inside = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c"]
    if subprocess.run([*inside, f"{mount} true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    given = [json.dumps(SPEC.to_json()), str(small), str(tmp_path / "store")]
    run = shlex.join([sys.executable, "-c", ON_A_FULL_DISK, *given])
    variables = os.environ | OFFLINE
    result = subprocess.run(
        [*inside, mount + run], cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("{} ['the W&B page is not complete: "), result.stdout
    assert "is its disk full?" in result.stdout and result.stdout.endswith(" True\n"), result.stdout
