"""The watches and the cache they keep: true after whatever a server does to a stream, and no bigger than it must be."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from marin_core.build import BuildOptions
from marin_core.jobs.kubernetes.cache import Cache
from marin_core.jobs.kubernetes.cluster import EVENTS, JOBS, JOBSETS, PODS, WORKLOADS, Cluster
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.judge import Step
from marin_core.jobs.kubernetes.launcher import KubernetesLauncher
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.sight import GONE_AT, Sight
from marin_core.jobs.kubernetes.watch import OURS, KindWatch, Pulse
from marin_core.jobs.spec import FailureClass, JobSpec
from marin_core.store import ArtifactSpec, Store
from tests.jobs.kubernetes import testbed
from tests.jobs.kubernetes.flaky_api import BREAK, Answer, served
from tests.jobs.kubernetes.raw import NAME, NOW, condition, event, failed, job, pod


def now(cache: Cache) -> Sight:
    return cache.sight(NAME, NOW)


def until(met: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


# The cache


def test_a_job_is_its_object_its_pods_and_their_events() -> None:
    cache = Cache()
    cache.follow(NAME)
    cache.apply(JOBS, "ADDED", job(), NOW)
    cache.apply(PODS, "ADDED", pod("p0"), NOW)
    cache.apply(EVENTS, "ADDED", event("Pulling", "x"), NOW)
    cache.apply(EVENTS, "ADDED", event("Pulling", "x", about="someone-elses-pod"), NOW)
    cache.apply(WORKLOADS, "ADDED", {"metadata": {"uid": "w", "ownerReferences": [{"name": NAME}]}}, NOW)
    child = job()
    child["metadata"] = {**child["metadata"], "name": f"{NAME}-s-0", "uid": "child"}
    cache.apply(JOBS, "ADDED", child, NOW)
    seen = now(cache)
    assert seen.object and seen.object["metadata"]["uid"] == "job-1"
    assert [p["metadata"]["uid"] for p in seen.pods] == ["p0"]
    assert [e["reason"] for e in seen.events] == ["Pulling"]
    assert seen.workload
    assert cache.take_changed(0) == {NAME}
    assert cache.take_changed(0) == set()


@pytest.mark.parametrize("about", [f"{NAME}-s-0-3-x7d8f", f"job-{NAME}-77a10", f"jobset-{NAME}-77a10", NAME])
def test_events_find_their_job_by_name(about: str) -> None:
    cache = Cache()
    cache.apply(EVENTS, "ADDED", event("FailedCreate", "x", about=about, kind="Job"), NOW)
    assert len(now(cache).events) == 1


def test_a_list_says_what_is_gone() -> None:
    cache = Cache()
    cache.follow(NAME)
    cache.replace(JOBS, [job()], 1.0, NOW)
    cache.replace(PODS, [pod("p0"), pod("p1")], 1.0, NOW)
    cache.replace(PODS, [pod("p1")], 2.0, NOW)
    assert {p["metadata"]["uid"]: GONE_AT in p for p in now(cache).pods} == {"p0": True, "p1": False}
    cache.replace(JOBSETS, [], 2.0, NOW)
    assert now(cache).object
    cache.replace(JOBS, [], 2.0, NOW)
    assert (now(cache).object, now(cache).gone_since) == (None, NOW)


def test_a_list_that_was_asked_for_before_the_create_does_not_know_it() -> None:
    cache = Cache()
    cache.follow(NAME)
    cache.put(job(), at=5.0)
    cache.replace(JOBS, [], 4.0, NOW)
    assert now(cache).object
    cache.replace(JOBS, [], 6.0, NOW)
    assert now(cache).object is None


def test_an_object_that_took_the_place_of_another_is_not_gone_with_it() -> None:
    cache = Cache()
    cache.follow(NAME)
    cache.put(job(uid="job-2"), at=1.0)
    cache.apply(JOBS, "DELETED", job(uid="job-1"), NOW)
    assert now(cache).object


def test_what_is_over_is_dropped() -> None:
    cache = Cache()
    cache.follow(NAME)
    cache.apply(JOBS, "ADDED", job(), NOW)
    cache.apply(PODS, "ADDED", pod("p0"), NOW)
    cache.forget(NAME)
    for change, item in (("MODIFIED", pod("p0")), ("DELETED", pod("p0"))):
        cache.apply(PODS, change, item, NOW)
    cache.apply(JOBS, "DELETED", job(), NOW)
    assert cache._entries == {}
    for n in range(10_000):
        cache.apply(EVENTS, "ADDED", event("Pulling", "x", about=f"job-of-others-{n:08x}"), NOW)
    assert len(cache._entries) <= 2001
    for n in range(100):
        cache.apply(EVENTS, "ADDED", event(f"reason-{n}", "x"), NOW)
    assert len(now(cache).events) == 40


# Streams


def items(kind: str, *objects: dict, version: int) -> bytes:
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": str(version)}, "items": objects}).encode()


def change(what: str, item: dict, version: int) -> bytes:
    item = {**item, "metadata": {**item.get("metadata", {}), "resourceVersion": str(version)}}
    return json.dumps({"type": what, "object": item}).encode() + b"\n"


def silence() -> Iterator[bytes]:
    time.sleep(30)
    yield b""


GONE = {"kind": "Status", "code": 410, "message": "too old resource version: 3 (9)"}


def test_a_stream_goes_on_where_it_broke_and_begins_anew_when_its_past_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Iterable[bytes]] = [[items("Pod", pod("p0"), version=1)], [items("Pod", pod("p9"), version=9)]]
    streams = {
        "1": [[change("ADDED", pod("p1"), 2), change("BOOKMARK", {"kind": "Pod"}, 3)[:20], BREAK]],
        "2": [[change("MODIFIED", pod("p1", phase="Failed"), 3)], silence()],
        "3": [[change("ERROR", GONE, 0)]],
        "9": [[change("ADDED", pod("p10"), 10)], silence()],
        "10": [silence()],
    }
    versions: list[str] = []

    def answer(path: str, query: dict[str, str]) -> Answer:
        assert (path, query["labelSelector"]) == ("/api/v1/namespaces/lab/pods", OURS["labelSelector"])
        if "watch" not in query:
            return 200, listed.pop(0)
        versions.append(query["resourceVersion"])
        return 200, streams[versions[-1]].pop(0)

    cache = Cache()
    cache.follow(NAME)
    with served(answer, tmp_path, monkeypatch) as place:
        watch = KindWatch(Cluster(place), cache, PODS, "lab", OURS)
        watch.start()
        until(lambda: "p10" in {p["metadata"]["uid"] for p in now(cache).pods})
        watch.stop()
        assert watch.join(5)
    assert versions[:4] == ["1", "2", "3", "9"]
    assert {p["metadata"]["uid"]: GONE_AT in p for p in now(cache).pods} == {
        "p0": True,
        "p1": True,
        "p9": False,
        "p10": False,
    }


def test_a_long_list_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(path: str, query: dict[str, str]) -> Answer:
        if "watch" in query:
            return 200, silence()
        if query.get("continue") == "more":
            return 200, [items("Pod", pod("p1"), version=5)]
        first = json.loads(items("Pod", pod("p0"), version=5))
        first["metadata"]["continue"] = "more"
        return 200, [json.dumps(first).encode()]

    cache = Cache()
    cache.follow(NAME)
    with served(answer, tmp_path, monkeypatch) as place:
        watch = KindWatch(Cluster(place), cache, PODS, "lab", OURS)
        watch.start()
        until(lambda: len(now(cache).pods) == 2)
        watch.stop()


def test_a_missing_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = 'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "lab"'

    def answer(path: str, query: dict[str, str]) -> Answer:
        return 403, [json.dumps({"kind": "Status", "message": message}).encode()]

    with served(answer, tmp_path, monkeypatch) as place:
        watch = KindWatch(Cluster(place), Cache(), PODS, "lab", OURS)
        watch.start()
        until(lambda: watch.trouble)
        watch.stop()
    remedy = "grant get, list and watch on pods in the Role of whoever submits"
    assert watch.trouble == f"may not watch pods in namespace lab: {message}; {remedy}"


def test_a_server_that_is_away_is_noticed_and_its_return_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = threading.Event()

    def answer(path: str, query: dict[str, str]) -> Answer:
        return (200, [b"{}"]) if there.is_set() else (200, [BREAK])

    with served(answer, tmp_path, monkeypatch) as place:
        pulse = Pulse(Cluster(place), every_seconds=0.05)
        assert pulse.away() is None
        pulse.start()
        until(lambda: pulse.away())
        away = pulse.away()
        assert away and "the API server of context 'flaky' (http://127.0.0.1" in away[1]
        there.set()
        until(lambda: pulse.away() is None)
        pulse.stop()


def test_what_cannot_be_read_is_told_and_listed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that ended would leave all jobs as they were, for ever."""
    mended = threading.Event()
    streams = [[b"<html>proxy</html>\n"], [change("ADDED", {"kind": "Pod"}, 3).replace(b"metadata", b"m")], silence()]

    def answer(path: str, query: dict[str, str]) -> Answer:
        if "watch" in query:
            return 200, streams.pop(0)
        return (200, [items("Pod", pod("p0"), version=2)]) if mended.is_set() else (200, [b'{"items": [], "x": 1}'])

    cache = Cache()
    cache.follow(NAME)
    with served(answer, tmp_path, monkeypatch) as place:
        watch = KindWatch(Cluster(place), cache, PODS, "lab", OURS)
        watch.start()
        until(lambda: watch.trouble)
        assert watch.trouble == "cannot read what the server says of pods: KeyError: 'metadata'; listing them anew"
        mended.set()
        until(lambda: not streams and now(cache).pods and not watch.trouble)
        watch.stop()
        assert watch.join(5)


# Before a job is declared over


GAVE_UP = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", minutes=4)


def versioned(item: dict, version: int) -> dict:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


def test_a_read_beside_the_watches_knows_nothing_better_than_they_do() -> None:
    cache = Cache()
    cache.follow(NAME)
    cache.apply(JOBS, "ADDED", versioned(job(active=1), 5), NOW)
    cache.apply(PODS, "ADDED", versioned(pod("p0", phase="Failed"), 6), NOW)
    cache.apply(PODS, "DELETED", versioned(pod("p1"), 7), NOW)
    older = [versioned(pod("p0"), 4), versioned(pod("p1"), 7), versioned(pod("p2"), 4)]
    cache.learn(NAME, JOBS, older, versioned(job(active=0), 4))
    assert [p["status"]["phase"] for p in now(cache).pods] == ["Failed", "Running", "Running"]
    assert [GONE_AT in p for p in now(cache).pods] == [False, True, False]
    seen = now(cache)
    assert seen.object and seen.object["status"]["active"] == 1
    cache.learn(NAME, JOBS, [versioned(pod("p2", phase="Failed"), 9)], versioned(job(active=0), 9))
    seen = now(cache)
    assert seen.object and (seen.object["status"]["active"], seen.pods[2]["status"]["phase"]) == (0, "Failed")
    cache.apply(JOBS, "DELETED", versioned(job(), 10), NOW)
    cache.learn(NAME, JOBS, [], versioned(job(), 9))
    assert now(cache).object is None
    cache.forget(NAME)
    cache.learn(NAME, JOBS, older, versioned(job(), 9))
    assert cache._entries == {}


@contextmanager
def launched(answer: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple]:
    """A launcher whose watches say nothing, and the handle of a job that the cluster is known to have given up."""
    artifact = ArtifactSpec("checkpoints/delphi", "acquire", "1", {})
    with served(answer, folder, monkeypatch) as place:
        options = BuildOptions(folder / "scratch", dagster_run="run-1")
        launcher = KubernetesLauncher(Store(str(folder / "store")), folder / "state", options, place)
        spec = JobSpec(artifact, ("cpu-1",), max_failures=0)
        handle = KubernetesJob(spec, JOBS, launcher._terms(spec), lambda _: None)
        launcher._cache.follow(spec.name)
        launcher._cache.put(named(job(GAVE_UP), spec.name), at=1.0)
        yield launcher, handle
        launcher.close()


def named(item: dict, name: str) -> dict:
    return json.loads(json.dumps(item).replace(NAME, name))


def test_a_failure_is_judged_with_its_pods_though_their_watch_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = failed("p0", 137, reason="OOMKilled")

    def answer(path: str, query: dict[str, str]) -> Answer:
        name = handle.job.name
        if path.endswith("/pods"):
            assert query["labelSelector"] == f"marin/job={name}"
            return 200, [items("Pod", named(crashed, name), version=9)]
        assert path.endswith(f"/jobs/{name}")
        return 200, [json.dumps(named(job(GAVE_UP), name)).encode()]

    with launched(answer, tmp_path, monkeypatch) as (launcher, handle):
        _, blind = launcher._judge(handle)
        assert [(end.failure, end.pod) for end in blind.ended.values()] == [(FailureClass.UNKNOWN, "")]
        _, verdict = launcher._judge_the_end(handle)
        assert (verdict.step, verdict.failure) == (Step.FINISH, FailureClass.OUT_OF_MEMORY)
        assert (verdict.culprit, list(handle.memory.ended)) == (f"{handle.job.name}-p0", ["p0"])


def test_an_act_that_goes_wrong_in_whatever_way_is_told_and_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marin_core.jobs.kubernetes.launcher._RETRY_SECONDS", 0.3)
    with launched(lambda path, query: (200, [b"{}"]), tmp_path, monkeypatch) as (launcher, handle):
        handle.busy.set()
        launcher._cache.take_changed(0)
        began = time.monotonic()
        launcher._act(handle)
        assert time.monotonic() - began >= 0.3
        assert (handle.status().reason, handle.busy.is_set()) == ("KeyError: 'items'", False)
        assert launcher._cache.take_changed(0) == {handle.job.name}


@pytest.mark.slow
def test_the_cache_follows_a_real_cluster(cluster: testbed.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    namespace = cluster.namespace()
    place = KubernetesPlace(namespace=namespace, image="x", region="r", context="testbed")
    cache, labels = Cache(), job()["metadata"]["labels"] | {"app.kubernetes.io/managed-by": "marin-assets"}
    cache.follow(NAME)
    watches = [KindWatch(Cluster(place), cache, kind, namespace, OURS) for kind in (PODS, JOBS)]
    watches.append(KindWatch(Cluster(place), cache, EVENTS, namespace))
    for watch in watches:
        watch.start()
    container = {"name": "worker", "image": "x", "command": ["sleep", "1"]}
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"metadata": {"name": NAME, "labels": labels}, "spec": {"template": template}}
    cluster.batch.create_namespaced_job(namespace, body)
    until(
        lambda: any(c["type"] == "Complete" for c in (now(cache).object or {}).get("status", {}).get("conditions", ()))
    )
    assert [p["status"]["phase"] for p in now(cache).pods] == ["Succeeded"]
    until(lambda: {e["reason"] for e in now(cache).events} >= {"SuccessfulCreate", "Scheduled"})
    cluster.batch.delete_namespaced_job(NAME, namespace, propagation_policy="Background")
    until(lambda: now(cache).object is None and all(GONE_AT in p for p in now(cache).pods))
    for watch in watches:
        watch.stop()
    assert all(watch.join(5) for watch in watches)
