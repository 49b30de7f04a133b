"""What a worker tells through the store: in Dagster's own protocol, in order, once, whoever dies in between."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.pipes.utils import PipesBlobStoreMessageReader

from marin_core.jobs import messages
from marin_core.jobs.events import PodEvents
from marin_core.jobs.messages import (
    ATTEMPTS_FOLDER,
    CHUNK_SECONDS,
    MAX_LOGGED,
    MAX_MESSAGE,
    MessageReader,
    MessageWriter,
    WorkerEvents,
    chunk_path,
    chunk_pause,
    messages_folder,
)
from marin_core.store import ObjectStore, open_objects
from marin_core.store.local import LocalObjects
from marin_core.store.objects import StoredObject


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return open_objects(str(tmp_path / "store"))


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_all(objects: ObjectStore, pod: str, job: str = "job") -> WorkerEvents:
    """What a new reader finds."""
    return MessageReader(objects, job, pod).read()


class StoreReader(PipesBlobStoreMessageReader):
    """Dagster's reader, fed with our chunks."""

    def __init__(self, objects: ObjectStore, job: str, pod: str):
        super().__init__(interval=0)
        self._objects, self._job, self._pod = objects, job, pod

    @contextmanager
    def get_params(self) -> Iterator[dict[str, str]]:
        yield {}

    def download_messages_chunk(self, index: int, params: object) -> str | None:
        stored = self._objects.read(chunk_path(self._job, self._pod, index))
        return None if stored is None else stored.data.decode()

    def messages_are_readable(self, params: object) -> bool:
        return True

    def no_messages_debug_text(self) -> str:
        return "no chunks"


@pytest.mark.filterwarnings("ignore::dagster._utils.warnings.PreviewWarning", "ignore::DeprecationWarning")
def test_dagster_itself_understands_the_messages(objects: ObjectStore) -> None:
    custom = []

    @dg.asset
    def told(context: dg.AssetExecutionContext) -> Any:
        reader = StoreReader(objects, "job", "pod")
        with dg.open_pipes_session(
            context, context_injector=dg.PipesEnvContextInjector(), message_reader=reader
        ) as session:
            writer = MessageWriter(objects, "job", "pod", {"rank": 0})
            writer.log("the first line")
            writer.progress({"step": 1})
            writer.failed("the batch does not fit")
            assert writer.close()
            until(lambda: len(session.get_custom_messages()) == 2)
            custom.extend(session.get_custom_messages())
            opened.update(reader.opened_payload or {})
        return session.get_results()

    opened: dict[str, object] = {}
    with dg.instance_for_test() as instance:
        result = dg.materialize([told], instance=instance)
        logged = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert result.success
    assert "the first line" in logged
    assert custom == [{"failed": "the batch does not fit"}, {"progress": {"step": 1}}]
    assert opened == {"extras": {"rank": 0}}
    assert not any("did not receive" in message or "unexpected message" in message for message in logged)


def test_a_reader_hears_each_thing_once_and_only_the_latest_progress(objects: ObjectStore) -> None:
    reader = MessageReader(objects, "job", "pod")
    assert reader.read() == WorkerEvents()
    writer = MessageWriter(objects, "job", "pod", {"rank": 3})
    until(lambda: reader.read().opened == {"rank": 3}, CHUNK_SECONDS / 2)
    for step in range(500):
        writer.progress({"step": step})
    writer.log("one")
    writer.log("two")
    assert writer.close()
    assert reader.read() == WorkerEvents(logs=("one", "two"), progress={"step": 499}, closed=True)
    assert reader.read() == WorkerEvents()
    assert len(list(objects.list(messages_folder("job") + "/"))) == 2


def test_a_chunk_that_is_not_there_yet_is_waited_for(objects: ObjectStore) -> None:
    writer = MessageWriter(objects, "job", "pod")
    writer.log("early")
    writer.close()
    late = chunk_path("job", "pod", 1)
    chunks = [objects.read(path) for path, _ in objects.list(messages_folder("job") + "/")]
    objects.delete(late)
    reader = MessageReader(objects, "job", "pod")
    assert reader.read() == WorkerEvents()
    assert chunks[0] is not None
    objects.create(late, chunks[0].data)
    events = reader.read()
    assert (events.opened, events.logs, events.closed) == ({}, ("early",), True)


COUNTING = """
import sys, time
from marin_core.jobs.messages import MessageWriter
from marin_core.store import open_objects
writer = MessageWriter(open_objects(sys.argv[1]), "job", sys.argv[2])
for number in range(int(sys.argv[3]), 10**6):
    writer.log(str(number))
    time.sleep(0.02)
"""


def test_either_end_may_be_killed(objects: ObjectStore, tmp_path: Path) -> None:
    heard: list[int] = []
    for pod in ("first", "second"):  # a pod that is started again has another name
        arguments = [str(tmp_path / "store"), pod, str(len(heard))]
        worker = subprocess.Popen([sys.executable, "-c", COUNTING, *arguments])
        reader = MessageReader(objects, "job", pod)
        mine: list[int] = []
        for _ in range(2):
            before = len(mine)
            while len(mine) == before:
                mine += map(int, reader.read().logs)
                time.sleep(0.05)
            # A reader that begins again has all that the one before had.
            reader = MessageReader(objects, "job", pod)
            again = [int(line) for line in reader.read().logs]
            assert again[: len(mine)] == mine
            mine = again
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        mine += map(int, reader.read().logs)
        heard += mine
        assert not read_all(objects, pod).closed
    assert heard == list(range(len(heard)))


def test_messages_outlive_an_outage_of_the_store_in_order(objects: ObjectStore, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.write_text("not a folder: nothing can be written below it")
    writer = MessageWriter(objects, "job", "pod")
    for number in range(50):
        writer.log(str(number))
        writer.progress({"step": number})
    assert read_all(objects, "pod") == WorkerEvents()
    began = time.monotonic()
    assert not writer.close(timeout=1.0)
    assert time.monotonic() - began < 2.0
    root.unlink()
    until(lambda: read_all(objects, "pod").closed, 20)
    events = read_all(objects, "pod")
    assert events.logs == tuple(map(str, range(50)))
    assert events.progress == {"step": 49}


def test_a_second_process_of_the_same_pod_goes_on_after_the_first(objects: ObjectStore) -> None:
    for text in ("one", "two"):
        writer = MessageWriter(objects, "job", "pod")
        writer.log(text)
        assert writer.close()
    assert read_all(objects, "pod").logs == ("one", "two")


def test_days_of_progress_are_few_chunks() -> None:
    age, chunks = 0.0, 1
    while age < 72 * 3600:
        age, chunks = age + chunk_pause(age), chunks + 1
        assert age > 60 or chunk_pause(age) == CHUNK_SECONDS
    assert chunks < 2_000


def test_chunks_are_written_at_pauses_that_grow(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "CHUNK_SECONDS", 0.05)
    monkeypatch.setattr(messages, "CHUNK_SHARE_OF_AGE", 0.5)
    writer = MessageWriter(objects, "job", "pod")
    for step in range(60):
        writer.progress({"step": step})
        time.sleep(0.02)
    assert writer.close()
    # The opening one, seven pauses from 0.05 s to 1.2 s at most, and the closing one; it would be two dozen.
    assert 4 <= len(list(objects.list(messages_folder("job") + "/"))) <= 10
    assert read_all(objects, "pod").progress == {"step": 59}


class FarObjects(LocalObjects):
    """A store whose answers take their time, and fail as told."""

    failing: str | None = None
    under_way = most_under_way = 0

    def read(self, path: str) -> StoredObject | None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        time.sleep(0.02)
        self.under_way -= 1
        if path == self.failing:
            raise OSError("the line is cut\nin two")
        return super().read(path)


def test_a_reader_that_is_behind_reads_many_chunks_at_a_time_and_in_order(tmp_path: Path) -> None:
    objects = FarObjects(str(tmp_path))
    for number in range(1, 201):
        log = {"method": "log", "params": {"message": str(number)}}
        objects.create(chunk_path("job", "pod", number), json.dumps(log).encode())
    objects.failing = chunk_path("job", "pod", 100)
    reader = MessageReader(objects, "job", "pod")
    began = time.monotonic()
    before = reader.read()
    assert (before.logs, before.unreachable) == (tuple(map(str, range(1, 100))), "the line is cut")
    objects.failing = None
    assert reader.read().logs == tuple(map(str, range(100, 201)))
    assert reader.read() == WorkerEvents()
    assert objects.most_under_way > 4
    assert time.monotonic() - began < 200 * 0.02 / 2


def test_attempts_are_those_who_led_whatever_they_told(objects: ObjectStore) -> None:
    for attempt in range(3):
        leader = PodEvents(objects, "job", f"pod-0-{attempt}", 0)
        # Asked again, by a process that the same pod started anew.
        assert [leader.earlier_attempts(), leader.earlier_attempts()] == [attempt, attempt]
        follower = PodEvents(objects, "job", f"pod-1-{attempt}", 1)
        follower.failed("lost the other")
        follower.close()
        leader.close()
    assert len(list(objects.list(f"{messages_folder('job')}/{ATTEMPTS_FOLDER}/"))) == 3


def test_logs_are_bounded(objects: ObjectStore) -> None:
    writer = MessageWriter(objects, "job", "pod")
    writer.log("x" * 10 * MAX_MESSAGE)
    for _ in range(2 * MAX_LOGGED // MAX_MESSAGE):
        writer.log("y" * MAX_MESSAGE)
    writer.failed("still told")
    assert writer.close()
    events = read_all(objects, "pod")
    assert {len(line) for line in events.logs[:-1]} == {MAX_MESSAGE}
    assert sum(map(len, events.logs)) <= MAX_LOGGED
    assert events.logs[-1].endswith("is in the log of pod pod")
    assert events.failed == "still told"
