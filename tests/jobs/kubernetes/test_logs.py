"""Logs of pods: no line lost, none repeated, whatever happens to the connection; and a fixed number of requests."""

import time
from pathlib import Path

import pytest

from marin_core.jobs.kubernetes.cluster import Cluster
from marin_core.jobs.kubernetes.logs import KEPT_LINES, PodLog, RequestBudget, _new_lines
from marin_core.jobs.kubernetes.place import KubernetesPlace
from tests.jobs.kubernetes import testbed
from tests.jobs.kubernetes.flaky_api import BREAK, Answer, served


def line(second: int, text: str, fraction: str = "000000000") -> bytes:
    return f"2026-03-01T12:00:{second:02d}.{fraction}Z {text}".encode()


SEEN = [line(5, "a"), line(5, "a"), line(5, "b")]


@pytest.mark.parametrize(
    ("answer", "new"),
    [
        (SEEN, []),
        ([*SEEN, line(5, "a"), line(6, "c")], [line(5, "a"), line(6, "c")]),
        # Cut short by a proxy.
        (SEEN[:2], []),
        # Rotated meanwhile.
        ([line(5, "b"), line(7, "d")], [line(7, "d")]),
        ([line(7, "d")], [line(7, "d")]),
        ([], []),
    ],
)
def test_what_was_seen_is_left_out_however_the_answer_begins(answer: list[bytes], new: list[bytes]) -> None:
    assert list(_new_lines(SEEN, answer)) == new


def test_a_log_read_over_a_bad_connection_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Many lines in one second, some of them alike to the last digit of their time.
    lines = [line(n // 7, f"step {n // 2}", f"{n // 3:09d}") for n in range(300)]
    asked: list[str] = []

    def answer(path: str, query: dict[str, str]) -> Answer:
        """The log grows by three lines a read; every second answer breaks, every fifth is an error."""
        assert path == "/api/v1/namespaces/lab/pods/p/log"
        asked.append(query.get("sinceTime", ""))
        if len(asked) % 5 == 0:
            return 502, [b"bad gateway"]
        since = asked[-1].rstrip("Z").encode()
        shown = [text + b"\n" for text in lines[: 3 * len(asked)] if text[:19] >= since]
        return 200, [*shown[: len(shown) // 2], BREAK] if len(asked) % 2 else shown

    with served(answer, tmp_path, monkeypatch) as place:
        log = PodLog(Cluster(place), "lab", "p", tmp_path / "p.log")
        for _ in range(120):
            log.read()
    assert (tmp_path / "p.log").read_bytes().splitlines() == lines
    assert len(log.tail) == KEPT_LINES
    assert log.tail[-1] == "step 149"
    assert asked[-1] == "2026-03-01T12:00:42Z"  # not from the beginning


def test_the_last_line_of_a_pod_needs_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda path, query: (200, [line(1, "a") + b"\n" + line(1, "b")]), tmp_path, monkeypatch) as place:
        log = PodLog(Cluster(place), "lab", "p", tmp_path / "p.log")
        log.read()
        assert list(log.tail) == ["a"]
        log.read(is_over=True)
        log.read(is_over=True)
        assert list(log.tail) == ["a", "b"]


def test_a_budget_is_one_for_all() -> None:
    budget = RequestBudget(per_minute=600, burst=5)
    began, granted = time.monotonic(), 0
    while time.monotonic() - began < 1:
        granted += budget.take(timeout=0.3)
    assert 10 <= granted <= 17  # 5 at once and 10 a second
    assert not RequestBudget(per_minute=1, burst=0).take(timeout=0.1)


@pytest.mark.slow
def test_a_real_pods_log_is_read_as_it_grows(cluster: testbed.Cluster, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    namespace = cluster.namespace()
    script = "for n in $(seq 1 400); do echo line $n; [ $((n % 20)) = 0 ] && sleep 0.2; done"
    body = {
        "metadata": {"name": "writer"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "w", "image": "x", "command": ["sh", "-c", script]}],
        },
    }
    cluster.core.create_namespaced_pod(namespace, body)
    place = KubernetesPlace(namespace=namespace, image="x", region="r", context="testbed")
    log = PodLog(Cluster(place), namespace, "writer", tmp_path / "writer.log")
    deadline = time.monotonic() + 240
    while cluster.core.read_namespaced_pod("writer", namespace).status.phase != "Succeeded":
        log.read()
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert log.read(is_over=True) is None
    texts = [text.split(" ", 1)[1] for text in (tmp_path / "writer.log").read_text().splitlines()]
    assert texts == [f"line {n}" for n in range(1, 401)]
    assert (log.read(is_over=True), len(log.tail)) == (None, KEPT_LINES)
    assert (tmp_path / "writer.log").read_text().count("\n") == 400
