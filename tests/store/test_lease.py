"""Leases: one holder at a time, a dead or stale one is replaced, and who lost a lease can neither renew nor commit."""

import dataclasses
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from marin_core.store import ArtifactSpec, Lease, LeaseLost, ObjectStore, Store, open_objects
from marin_core.store import lease as lease_module
from marin_core.store.lease import STALE_SECONDS, LeaseState

PATH = "raw/code/0123.lease"
ELSEWHERE = LeaseState(
    token=7, holder="process 1 on elsewhere", machine="elsewhere", pid=1, process_started="1", renewed=0.0
)
HOLD_UNTIL_KILLED = f"""
import sys, time
from marin_core.store import Lease, open_objects
print(Lease.acquire(open_objects(sys.argv[1]), {PATH!r}).token, flush=True)
time.sleep(600)
"""


class StillHeld(Exception):
    """Raised by a test that does not want to wait."""


@pytest.fixture
def objects(root: str) -> ObjectStore:
    return open_objects(root)


def test_a_free_lease_is_taken_with_the_first_token(objects: ObjectStore) -> None:
    lease = Lease.acquire(objects, PATH, refuse_to_wait)
    lease.renew()
    lease.check()
    assert lease.token == 1


def test_a_second_writer_waits_for_a_live_holder(objects: ObjectStore) -> None:
    first = Lease.acquire(objects, PATH)
    waits_for: list[str] = []
    is_waiting = threading.Event()

    def on_wait(holder: str) -> None:
        waits_for.append(holder)
        is_waiting.set()

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(Lease.acquire, objects, PATH, on_wait)
        assert is_waiting.wait(10)
        assert not second.done()
        first.release()
        assert second.result(timeout=10).token == 2
    assert waits_for[0] == state(objects).holder


def test_a_holder_on_another_machine_is_waited_for(objects: ObjectStore) -> None:
    objects.create(PATH, dataclasses.replace(ELSEWHERE, renewed=time.time()).encode())
    with pytest.raises(StillHeld, match="process 1 on elsewhere"):
        Lease.acquire(objects, PATH, refuse_to_wait)


def test_a_released_lease_is_free_and_its_token_keeps_counting(objects: ObjectStore) -> None:
    Lease.acquire(objects, PATH).release()
    second = Lease.acquire(objects, PATH, refuse_to_wait)
    second.release()
    assert [second.token, Lease.acquire(objects, PATH, refuse_to_wait).token] == [2, 3]


def test_the_lease_of_a_killed_process_is_taken_at_once(objects: ObjectStore, root: str) -> None:
    command = [sys.executable, "-c", HOLD_UNTIL_KILLED, root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            with pytest.raises(StillHeld, match=f"process {process.pid} on"):
                Lease.acquire(objects, PATH, refuse_to_wait)
        finally:
            process.kill()
    assert time.time() - state(objects).renewed < STALE_SECONDS
    assert Lease.acquire(objects, PATH, refuse_to_wait).token == 2


def test_a_process_that_got_the_number_of_a_dead_holder_is_not_taken_for_it(objects: ObjectStore) -> None:
    Lease.acquire(objects, PATH)
    put(objects, dataclasses.replace(state(objects), process_started="1"))
    assert Lease.acquire(objects, PATH, refuse_to_wait).token == 2


def test_a_lease_that_was_not_renewed_for_long_is_taken(objects: ObjectStore) -> None:
    objects.create(PATH, dataclasses.replace(ELSEWHERE, renewed=time.time() - STALE_SECONDS - 1).encode())
    assert Lease.acquire(objects, PATH, refuse_to_wait).token == 8


def test_the_heartbeat_keeps_a_lease_fresh(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_SECONDS", 0.02)
    lease = Lease.acquire(objects, PATH)
    first = state(objects).renewed
    wait_until(lambda: state(objects).renewed > first)
    assert state(objects).token == lease.token


def test_the_heartbeat_finds_out_that_the_lease_is_lost(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_SECONDS", 0.02)
    lease = Lease.acquire(objects, PATH)
    steal(objects)
    wait_until(lambda: is_known_lost(lease))


def test_a_lost_lease_cannot_be_renewed(objects: ObjectStore) -> None:
    lease = Lease.acquire(objects, PATH)
    steal(objects)
    with pytest.raises(LeaseLost, match=r"0123\.lease was lost: held by process 1 on elsewhere") as lost:
        lease.renew()
    assert "\n" not in str(lost.value)
    with pytest.raises(LeaseLost):
        lease.check()
    assert state(objects).holder == ELSEWHERE.holder


def test_a_lease_that_was_deleted_cannot_be_renewed(objects: ObjectStore) -> None:
    lease = Lease.acquire(objects, PATH)
    objects.delete(PATH)
    with pytest.raises(LeaseLost, match="it was deleted"):
        lease.renew()
    assert objects.read(PATH) is None


def test_releasing_a_lost_lease_does_not_disturb_the_new_holder(objects: ObjectStore) -> None:
    lease = Lease.acquire(objects, PATH)
    steal(objects)
    held = state(objects)
    lease.release()
    assert state(objects) == held


def test_a_lost_lease_cannot_commit(root: str) -> None:
    store = Store(root)
    spec = ArtifactSpec("raw/code", "read_source", "1")
    with store.writer(spec) as writer:
        writer.write_json("numbers.json", [1])
        steal(store.objects, f"raw/code/{spec.fingerprint}.lease")
        with pytest.raises(LeaseLost):
            writer.commit({})
        with pytest.raises(LeaseLost):
            writer.check()
        with pytest.raises(LeaseLost):
            writer.open("more.json")
    assert store.record(spec.name, spec.fingerprint) is None


@pytest.mark.parametrize("is_there", [pytest.param(True, id="over"), pytest.param(False, id="absent")])
def test_one_of_many_racing_writers_gets_a_free_lease(objects: ObjectStore, is_there: bool) -> None:
    if is_there:
        objects.create(PATH, ELSEWHERE.encode())
    start = threading.Barrier(16)

    def acquire(_: int) -> Lease | None:
        start.wait()
        try:
            return Lease.acquire(objects, PATH, refuse_to_wait)
        except StillHeld:
            return None

    with ThreadPoolExecutor(16) as pool:
        holders = [lease for lease in pool.map(acquire, range(16)) if lease]
    assert len(holders) == 1
    assert holders[0].token == (ELSEWHERE.token + 1 if is_there else 1)


def refuse_to_wait(holder: str) -> NoReturn:
    raise StillHeld(holder)


def state(objects: ObjectStore) -> LeaseState:
    stored = objects.read(PATH)
    assert stored is not None
    return LeaseState(**json.loads(stored.data))


def put(objects: ObjectStore, new: LeaseState, path: str = PATH) -> None:
    """Replace whatever the lease object holds, also between two heartbeats of its holder."""
    replaced = False
    while not replaced:
        stored = objects.read(path)
        assert stored is not None
        replaced = objects.replace(path, new.encode(), stored.version)


def steal(objects: ObjectStore, path: str = PATH) -> None:
    """What another machine does once it takes the lease for stale."""
    put(objects, dataclasses.replace(ELSEWHERE, renewed=time.time()), path)


def is_known_lost(lease: Lease) -> bool:
    try:
        lease.check()
    except LeaseLost:
        return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
