"""Jobs on a real API server, in real pods: what becomes of them, and that nothing of them is left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from marin_core.errors import MarinError
from marin_core.jobs import FailureClass, JobHandle, JobState, JobStatus, follow
from marin_core.jobs.kubernetes import launcher as launcher_module
from marin_core.jobs.kubernetes import lifecycle
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.judge import Verdict
from marin_core.jobs.kubernetes.watch import Pulse
from marin_core.jobs.messages import LOGS_FOLDER, messages_folder
from tests.jobs.kubernetes import testbed
from tests.jobs.kubernetes.lab import REPOSITORY, Lab, lab, reason_of, states, until

__all__ = ["lab"]

pytestmark = pytest.mark.slow

# Ends


def test_a_job_commits_and_leaves_nothing_but_its_artifact_and_its_log(lab: Lab) -> None:
    job = lab.job([["log", "hello"], ["progress", 7], ["print", 300], ["sleep", 3], ["commit", 1]])
    handle, seen = lab.run(job)
    status = handle.status()
    assert status.state is JobState.SUCCEEDED, status
    assert lab.store.artifact(job.artifact).record.summary == {"value": 1}
    assert JobState.RUNNING in states(seen)
    assert (status.messages, status.progress, status.retries) == (("hello",), {"step": 7}, 0)
    (log,) = (lab.folder / "state" / "logs").iterdir()
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()] == [f"line {n}" for n in range(300)]
    until(lambda: not list(lab.store.objects.list(".jobs/")))
    lab.assert_nothing_is_left()


def test_a_job_that_ends_well_without_a_record_has_failed(lab: Lab) -> None:
    handle, _ = lab.run(lab.job([["print", 1]]))
    status = handle.status()
    assert (status.state, status.reason) == (JobState.FAILED, "the job ended well but committed nothing")
    assert status.log_tail == ("line 0",)
    lab.assert_nothing_is_left()


def test_a_worker_that_always_crashes_spends_its_budget_and_its_log_is_kept(lab: Lab) -> None:
    handle, _ = lab.run(lab.job([["print", 250], ["exit", 3]]))
    status = handle.status()
    assert (status.state, status.failure, status.retries) == (JobState.FAILED, FailureClass.APPLICATION, 1)
    assert status.reason == "the worker ended with exit code 3, 2 times"
    assert status.log_tail == tuple(f"line {n}" for n in range(230, 250))
    kept = Path(status.links["log"]).read_text().splitlines()
    assert kept[-201:-1] == [f"line {n}" for n in range(50, 250)]
    assert "exit code 3" in kept[-1]
    assert len(list((lab.folder / "attempts" / "work").iterdir())) == 2
    lab.assert_nothing_is_left()


def test_a_crash_within_the_budget_is_made_good(lab: Lab) -> None:
    handle, seen = lab.run(lab.job([["exit", 1]], [["sleep", 3], ["commit", 2]]))
    status = handle.status()
    assert (status.state, status.preemptions, status.failures) == (JobState.SUCCEEDED, 0, 1)
    # The cluster may start it again before anybody looks; that it did is seen while it runs.
    assert any((s.failures, s.state.is_final) == (1, False) for s in seen)
    assert any("log" in s.links for s in seen)
    assert ("log" in status.links, status.log_tail) == (False, ())


def test_nothing_changes_a_job_that_has_ended(lab: Lab) -> None:
    handle, _ = lab.run(lab.job([["commit", 1]]))
    assert isinstance(handle, KubernetesJob)
    status = handle.status()
    until(lambda: not list(lab.store.objects.list(".jobs/")))
    late = Verdict(JobState.RETRYING, "the worker ended with exit code 3", culprit="an-earlier-pod")
    lab.launcher._acts.keep_logs(handle, late, [], is_last=True)
    handle.say("too late")
    assert handle.status() is status
    assert list(lab.store.objects.list(".jobs/")) == []


def test_a_log_that_cannot_be_kept_does_not_keep_a_job_from_failing(lab: Lab) -> None:
    job = lab.job([["refuse", "no such source"]])
    folder = Path(lab.store.root) / messages_folder(job.name)
    folder.mkdir(parents=True)
    (folder / LOGS_FOLDER).write_text("")
    handle, _ = lab.run(job)
    assert handle.status().state is JobState.FAILED
    assert handle.status().reason.startswith("no such source; its logs could not be kept: ")
    lab.assert_nothing_is_left()


def test_whoever_may_not_delete_jobs_sees_them_succeed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_without_delete(lab)))
    launcher = lab.open()
    handle, _ = lab.run(lab.job([["commit", 1]]), launcher)
    status = handle.status()
    assert status.state is JobState.SUCCEEDED
    assert status.reason.startswith("still on the cluster: ") and "cannot delete resource" in status.reason
    launcher.close()


def kubeconfig_without_delete(lab: Lab) -> Path:
    """Of a user who may do all else with jobs."""
    namespace, user = lab.place.namespace, "submitter"
    api = lab.cluster.core.api_client
    lab.cluster.core.create_namespaced_service_account(namespace, {"metadata": {"name": user}})
    groups, verbs = ["", "batch", "jobset.x-k8s.io"], ["create", "get", "list", "watch"]
    role = {"metadata": {"name": user}, "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": verbs}]}
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": namespace}],
    }
    rights = client.RbacAuthorizationV1Api(api)
    rights.create_namespaced_role(namespace, role)
    rights.create_namespaced_role_binding(namespace, binding)
    token = lab.cluster.core.create_namespaced_service_account_token(user, namespace, {"spec": {"audiences": []}})
    kubeconfig = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    for entry in kubeconfig["users"]:
        entry["user"] = {"token": token.status.token}
    path = lab.folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def test_an_error_of_the_task_is_final(lab: Lab) -> None:
    handle, _ = lab.run(lab.job([["refuse", "source package 'x' is not installed"]], max_failures=5))
    status = handle.status()
    assert (status.state, status.failure) == (JobState.FAILED, FailureClass.REFUSED)
    assert status.reason == "source package 'x' is not installed"
    assert len(list((lab.folder / "attempts" / "work").iterdir())) == 1
    lab.assert_nothing_is_left()


def test_a_preempted_pod_spends_no_failure(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """This server does not know pod failure policies: it gives the Job up, and the launcher makes it again."""
    made: list[dict] = []
    original = lifecycle.manifest

    def doomed(*arguments: Any, **options: Any) -> dict:
        body = original(*arguments, **options)
        notes = {"testbed/fail-after-seconds": "4", "testbed/fail-reason": "Preempted"}
        body["spec"]["template"]["metadata"]["annotations"] = notes
        made.append(body)
        return body

    monkeypatch.setattr(lifecycle, "manifest", doomed)
    handle, seen = lab.run(lab.job([["sleep", 60]], [["sleep", 60]], [["commit", 3]], max_failures=0))
    status = handle.status()
    assert (status.state, status.preemptions, status.failures) == (JobState.SUCCEEDED, 2, 0)
    assert JobState.PREEMPTED in states(seen)
    assert any("ended by its node" in s.reason for s in seen if s.state is JobState.PREEMPTED)
    assert [body["metadata"]["annotations"]["marin/preemptions"] for body in made] == ["0", "1", "2"]
    lab.assert_nothing_is_left()


# What it waits for


def test_an_unschedulable_job_tells_why_and_cancelling_it_leaves_nothing(lab: Lab) -> None:
    handle = lab.launcher.submit(lab.job([["commit", 1]], pools=("cpu-64",)))
    status = reason_of(handle, "no node pool with cpu-64 free in us-east5: 0/3 nodes are available")
    assert status.state is JobState.QUEUED
    handle.cancel()
    assert handle.status().state is JobState.CANCELLED
    lab.assert_nothing_is_left()


def test_a_missing_service_account_is_named(lab: Lab) -> None:
    launcher = lab.open(service_account="nobody")
    handle = launcher.submit(lab.job([["commit", 1]]))
    status = reason_of(handle, 'serviceaccount "nobody" not found')
    assert status.failure is FailureClass.CONFIGURATION
    handle.cancel()
    launcher.close()
    lab.assert_nothing_is_left()


def test_a_full_quota_is_named_and_waited_for(lab: Lab) -> None:
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
    lab.cluster.core.create_namespaced_resource_quota(lab.place.namespace, quota)
    until(lambda: lab.cluster.core.read_namespaced_resource_quota("small", lab.place.namespace).status.hard)
    handle = lab.launcher.submit(lab.job([["commit", 1]]))
    status = reason_of(handle, "the namespace's ResourceQuota is full")
    assert (status.state, status.failure) == (JobState.QUEUED, None)
    lab.cluster.core.delete_namespaced_resource_quota("small", lab.place.namespace)
    follow([handle], lambda *_: None)
    assert handle.status().state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"namespace": "no-such-namespace"}, "there is no namespace 'no-such-namespace' on the cluster: create it"),
        ({"env": {"NOT A NAME": "x"}, "scratch": "/tmp"}, "the API server does not accept the manifest"),
    ],
)
def test_a_job_that_the_server_refuses_has_failed_with_the_remedy(lab: Lab, place: dict, words: str) -> None:
    launcher = lab.open(**place)
    handle, _ = lab.run(lab.job([["commit", 1]]), launcher)
    status = handle.status()
    assert (status.state, status.failure) == (JobState.FAILED, FailureClass.CONFIGURATION)
    assert words in status.reason
    assert "\n" not in status.reason
    launcher.close()


def test_a_context_that_is_not_there_is_named(lab: Lab) -> None:
    with pytest.raises(MarinError, match="expected context 'nowhere' in the kubeconfig"):
        lab.open(context="nowhere")


# Several at once


def test_two_processes_that_race_make_one_job_and_both_see_it_succeed(lab: Lab) -> None:
    script = """
import sys, json
from pathlib import Path
from marin_core.build import BuildOptions
from marin_core.jobs import JobSpec, follow, open_launcher
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.store import ArtifactSpec, Store
given = json.loads(sys.stdin.readline())
store = Store(given["store"])
place = KubernetesPlace(**{**given["place"], "worker_command": tuple(given["place"]["worker_command"])})
launcher = open_launcher(store, Path(given["state"]), BuildOptions(Path("/tmp")), place)
print("ready", flush=True)
sys.stdin.readline()
handle = launcher.submit(JobSpec(store.load_plan(given["plan"]), ("cpu-1",)))
follow([handle], lambda *_: None)
print(json.dumps([handle.status().state.value, list(handle.status().messages)]), flush=True)
launcher.close()
"""
    job = lab.job([["sleep", 3], ["commit", 1]])
    given = {"store": lab.store.root, "plan": lab.store.save_plan(job.artifact), "place": vars(lab.place)}
    racers = []
    for n in range(2):
        line = json.dumps({**given, "state": str(lab.folder / f"state-{n}")})
        racer = subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True, cwd=REPOSITORY)
        assert racer.stdin
        racer.stdin.write(line + "\n")
        racer.stdin.flush()
        racers.append(racer)
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ends = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert [state for state, _ in ends] == ["succeeded", "succeeded"]
    attached = [messages for _, messages in ends if any("attached to the job" in text for text in messages)]
    assert len(attached) == 1
    assert len(list((lab.folder / "attempts" / "work").iterdir())) == 1
    assert created(lab, job.name) == 1
    lab.assert_nothing_is_left()


def created(lab: Lab, name: str) -> int:
    """How many objects of that name the server made, by its own log."""
    requests = [json.loads(line) for line in lab.cluster.audit_log.read_text().splitlines()]
    return sum(
        r["verb"] == "create"
        and (r.get("objectRef") or {}).get("name") == name
        and r["objectRef"].get("namespace") == lab.place.namespace
        and r["responseStatus"]["code"] == 201
        for r in requests
    )


def test_a_second_launcher_attaches_and_what_the_first_left_runs_on(lab: Lab) -> None:
    job = lab.job([["log", "hello"], ["sleep", 6], ["commit", 1]])
    first = lab.launcher.submit(job)
    until(lambda: first.status().state is JobState.RUNNING)
    first.detach()
    lab.launcher.close()
    second = lab.open()
    handle, _ = lab.run(job, second)
    assert handle.status().state is JobState.SUCCEEDED
    attached, hello = handle.status().messages
    assert attached.startswith(f"attached to the job {job.name} that Dagster run run-1 started")
    assert hello == "hello"
    assert created(lab, job.name) == 1
    second.close()
    lab.assert_nothing_is_left()


def test_a_finished_job_without_a_record_is_made_anew(lab: Lab) -> None:
    job = lab.job([["exit", 0]], [["commit", 1]])
    first = lab.launcher.submit(job)
    until(lambda: first.status().state is not JobState.QUEUED)
    first.detach()
    lab.launcher.close()
    until(lambda: lab.cluster.batch.read_namespaced_job(job.name, lab.place.namespace).status.succeeded)
    second = lab.open()
    handle, _ = lab.run(job, second)
    assert handle.status().state is JobState.SUCCEEDED
    second.close()


# Interference


@pytest.mark.parametrize(("pools", "phase"), [(("cpu-64",), "pending"), (("cpu-1",), "running")])
def test_a_job_deleted_from_outside_has_failed_within_a_minute(lab: Lab, pools: tuple[str, ...], phase: str) -> None:
    job = lab.job([["sleep", 60]], pools=pools)
    handle = lab.launcher.submit(job)
    wanted = JobState.QUEUED if phase == "pending" else JobState.RUNNING
    until(lambda: lab.left() and handle.status().state is wanted and "submitted" not in handle.status().reason)
    until(lambda: len(lab.left()) == 2)
    lab.cluster.batch.delete_namespaced_job(job.name, lab.place.namespace, propagation_policy="Background")
    began = time.monotonic()
    follow([handle], lambda *_: None)
    assert time.monotonic() - began < 60
    status = handle.status()
    assert (status.state, status.failure) == (JobState.FAILED, FailureClass.DELETED)
    assert f"while {phase}" in status.reason
    lab.assert_nothing_is_left()


def test_cancelling_at_any_moment_leaves_nothing(lab: Lab) -> None:
    handles = [lab.launcher.submit(lab.job([["sleep", 60]], name=f"work-{n}")) for n in range(8)]
    threads = [threading.Thread(target=cancel_later, args=(handle, n * 0.15)) for n, handle in enumerate(handles)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {handle.status().state for handle in handles} == {JobState.CANCELLED}
    lab.assert_nothing_is_left()


def cancel_later(handle: JobHandle, seconds: float) -> None:
    time.sleep(seconds)
    handle.cancel()


@pytest.mark.parametrize("outcome", ["cancel", "leave"])
def test_what_an_interrupted_follower_does_is_chosen(lab: Lab, outcome: str) -> None:
    handle = lab.launcher.submit(lab.job([["sleep", 5], ["commit", 1]]))

    def interrupt(_: JobHandle, status: JobStatus) -> None:
        if status.state is JobState.RUNNING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow([handle], interrupt, on_interrupt=lambda: outcome)  # pyright: ignore[reportArgumentType]
    if outcome == "cancel":
        lab.assert_nothing_is_left()
        assert lab.store.current(handle.job.artifact) is None
    else:
        until(lambda: lab.store.current(handle.job.artifact))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice within seconds what is otherwise nobody's business for a minute."""
    monkeypatch.setattr(launcher_module, "Pulse", lambda cluster: Pulse(cluster, every_seconds=1.0))
    monkeypatch.setattr(launcher_module, "_AWAY_SECONDS", 2.0)
    monkeypatch.setattr(launcher_module, "_REJUDGE_SECONDS", 1.0)


def test_a_server_that_hangs_is_a_reason_and_no_failure(impatient: None, lab: Lab) -> None:
    handle = lab.launcher.submit(lab.job([["sleep", 20], ["commit", 1]]))
    until(lambda: handle.status().state is JobState.RUNNING)
    server = int((lab.cluster.folder / "apiserver.pid").read_text())
    os.kill(server, signal.SIGSTOP)
    try:
        status = reason_of(handle, "has not answered for")
        assert "the API server of context 'testbed'" in status.reason
        assert status.state is JobState.RUNNING
    finally:
        os.kill(server, signal.SIGCONT)
    follow([handle], lambda *_: None)
    assert (handle.status().state, handle.status().retries) == (JobState.SUCCEEDED, 0)


def test_a_server_that_is_killed_and_comes_back_loses_no_job(impatient: None, lab: Lab) -> None:
    job = lab.job([["print", 100], ["sleep", 15], ["commit", 1]])
    handle = lab.launcher.submit(job)
    until(lambda: handle.status().state is JobState.RUNNING)
    with restarted(lab.cluster):
        reason_of(handle, "has not answered for")
    follow([handle], lambda *_: None)
    assert (handle.status().state, handle.status().retries) == (JobState.SUCCEEDED, 0)
    (log,) = (lab.folder / "state" / "logs").iterdir()
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()] == [f"line {n}" for n in range(100)]


def test_a_job_is_submitted_for_as_long_as_the_server_is_away(
    impatient: None, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have taken the job before its answer was lost: nobody would follow that, or cancel it."""
    monkeypatch.setattr(lifecycle, "_PATIENCE_SECONDS", 1.0)
    with restarted(lab.cluster):
        handle = lab.launcher.submit(lab.job([["commit", 1]]))
        status = reason_of(handle, "is the cluster up, and the kubeconfig's address right?")
        time.sleep(2)
        assert (status.state, handle.status().state) == (JobState.QUEUED, JobState.QUEUED)
    follow([handle], lambda *_: None)
    assert handle.status().state is JobState.SUCCEEDED
    lab.assert_nothing_is_left()


class restarted:
    """Kills the API server, and starts it again with the same command at the end."""

    def __init__(self, cluster: testbed.Cluster):
        self._folder = cluster.folder
        self._pid = int((cluster.folder / "apiserver.pid").read_text())

    def __enter__(self) -> None:
        command = Path(f"/proc/{self._pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        self._command = [part.decode() for part in command]
        os.kill(self._pid, signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        with open(self._folder / "logs" / "apiserver.log", "ab") as log:
            server = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=log, stdin=-3, start_new_session=True
            )
        (self._folder / "apiserver.pid").write_text(f"{server.pid}\n")
