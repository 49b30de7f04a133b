"""Stages: items done once, on any rank, in any order, and taken up again after a kill."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.stages import Counts, Phase, Stage, counts_of, run_items, run_stage, total
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, LeaseLost, Store, Workspace

SPEC = ArtifactSpec("numbers/test", "square", "1")


def squares(workspace: Workspace, items: int, before: Callable[[int], None] = lambda item: None) -> Stage:
    """Two phases: squares into the work folder, then their running sums into the artifact."""

    def square(item: int) -> Counts:
        before(item)
        with workspace.open_work(f"squares/{item}") as file:
            file.write(str(item * item).encode())
        return {"squares": 1}

    def add(item: int) -> Counts:
        found = 0
        for number in range(item + 1):
            with workspace.open_work(f"squares/{number}", "rb") as file:
                found += int(file.read())
        with workspace.open(f"sums/{item:03d}") as file:
            file.write(str(found).encode())
        return {"sums": {"all": 1, "even": int(found % 2 == 0)}}

    return Stage((Phase("square", items, square), Phase("add", lambda: items, add)), lambda counts: total(counts[1]))


@given(st.integers(1, 12), st.integers(1, 15), st.permutations(range(15)))
@settings(deadline=None, max_examples=30)
def test_any_number_of_ranks_in_any_order_writes_the_same_bytes(items: int, world: int, order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as shared:
        content = build(Store(alone), items)
        store = Store(shared)
        with store.writer(SPEC, resumable=True) as writer:
            ranks = [rank for rank in order if rank < world]

            def run_phase(phase: Phase) -> None:
                for rank in ranks:
                    run_items(phase, store.join(SPEC, writer.lease_token), rank=rank, world=world)

            record = writer.commit(run_stage(squares(writer, items), writer, run_phase))
        assert record.content == content


def test_an_item_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    store, started = Store(str(tmp_path)), []

    def fail_at_three(item: int) -> None:
        started.append(item)
        if item == 3 and started.count(3) == 1:
            raise MarinError("item 3 is bad today")

    with store.writer(SPEC, resumable=True) as writer, pytest.raises(MarinError, match="bad today"):
        run_stage(squares(writer, 6, fail_at_three), writer)
    with store.writer(SPEC, resumable=True) as writer:
        run_stage(squares(writer, 6, fail_at_three), writer)
    assert started == [0, 1, 2, 3, 3, 4, 5]


def test_intermediate_files_are_gone_after_the_commit(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    build(store, 4)
    assert sorted(file.path for file in store.artifact(SPEC).record.files) == [f"sums/{n:03d}" for n in range(4)]
    assert not list(tmp_path.rglob(".work"))


def test_deleting_the_folder_of_a_killed_attempt_begins_anew(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.writer(SPEC, resumable=True) as writer:
        run_items(squares(writer, 4).phases[0], writer, rank=0, world=2)
    shutil.rmtree(store.url(SPEC))
    assert build(store, 4) == build(Store(str(tmp_path / "whole")), 4)


def test_a_kill_while_an_older_attempt_is_cleared_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before = Store(str(tmp_path)), ArtifactSpec("raw/test", "acquire", "1")
    spec = dataclasses.replace(SPEC, inputs={"raw": before})
    commit_text(store, before, "old")
    with store.writer(spec, resumable=True) as writer:
        run_items(squares(writer, 4).phases[0], writer)
    shutil.rmtree(store.url(before))
    commit_text(store, before, "new")
    remove = store.objects.delete

    def killed(path: str) -> None:
        if not path.endswith(".work"):
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr(store.objects, "delete", killed)
    with pytest.raises(KeyboardInterrupt), store.writer(spec, resumable=True):
        pass
    monkeypatch.undo()
    started: list[int] = []
    with store.writer(spec, resumable=True) as writer:
        run_items(squares(writer, 4, started.append).phases[0], writer)
    assert started == [0, 1, 2, 3]


def test_what_other_ranks_have_not_done_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.writer(SPEC, resumable=True) as writer:
        phase = squares(writer, 6).phases[0]
        run_items(phase, writer, rank=1, world=2)
        with pytest.raises(MarinError, match=r"3 of 6 items of phase 'square' are not done \(the first is 0\)"):
            counts_of(phase, writer)


def test_a_marker_that_a_kill_cut_off_does_not_count(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.writer(SPEC, resumable=True) as writer:
        run_items(squares(writer, 2).phases[0], writer)
        marker = Path(writer.work_path("done", "square", "00001.json"))
        marker.write_text(marker.read_text()[:5])
        run_stage(squares(writer, 2), writer)
        assert json.loads(marker.read_text()) == {"squares": 1}


def test_a_rank_of_a_writer_that_lost_its_lease_writes_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.writer(SPEC, resumable=True) as writer:
        token = writer.lease_token
    with store.writer(SPEC, resumable=True):
        workspace = store.join(SPEC, token)
        with pytest.raises(LeaseLost):
            run_items(squares(workspace, 3).phases[0], workspace)
    assert not list(tmp_path.rglob("squares/*"))


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.4])
def test_a_killed_process_is_continued_with_the_same_bytes(tmp_path: Path, delay: float) -> None:
    slow = (
        "import sys, time\n"
        "from tests.data.test_stages import SPEC, squares\n"
        "from marin_core.data.stages import run_stage\n"
        "from marin_core.store import Store\n"
        "with Store(sys.argv[1]).writer(SPEC, resumable=True) as writer:\n"
        "    print('started', flush=True)\n"
        "    run_stage(squares(writer, 12, lambda item: time.sleep(0.05)), writer)\n"
    )
    place = tmp_path / "killed"
    victim = subprocess.Popen([sys.executable, "-c", slow, str(place)], stdout=subprocess.PIPE)
    assert victim.stdout and victim.stdout.readline() == b"started\n"
    time.sleep(delay)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    assert build(Store(str(place)), 12) == build(Store(str(tmp_path / "whole")), 12)


def commit_text(store: Store, spec: ArtifactSpec, text: str) -> None:
    with store.writer(spec) as writer:
        with writer.open("text") as file:
            file.write(text.encode())
        writer.commit({})


def build(store: Store, items: int) -> str:
    with store.writer(SPEC, resumable=True) as writer:
        return writer.commit(run_stage(squares(writer, items), writer)).content
