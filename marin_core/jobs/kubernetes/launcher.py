"""Jobs as JobSets and Indexed Jobs on a Kubernetes cluster: submitted, watched and judged until they end.

Restarts happen in the cluster, so training goes on when nobody follows. The threads here only look: one for each kind
of object that is watched, one that judges what changed, one that reads messages and one that reads logs, each within a
rate that does not grow with the number of jobs.
"""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from marin_core.build import BuildOptions
from marin_core.errors import in_one_line
from marin_core.jobs.kubernetes.attempts import last_of
from marin_core.jobs.kubernetes.cache import Cache
from marin_core.jobs.kubernetes.cluster import EVENTS, JOBS, JOBSETS, PODS, WORKLOADS, Cluster, Kind, kind_of
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.judge import Step, Verdict, first_start, judge
from marin_core.jobs.kubernetes.lifecycle import Lifecycle
from marin_core.jobs.kubernetes.logs import LogReader, RequestBudget
from marin_core.jobs.kubernetes.manifests import manifest
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.sight import GONE_AT, Raw, Sight, Terms, name_of, pod_index
from marin_core.jobs.kubernetes.times import utc
from marin_core.jobs.kubernetes.watch import OURS, KindWatch, Pulse, look_again
from marin_core.jobs.spec import JobSpec
from marin_core.store import Store

# Reasons carry ages, so jobs that did not change are judged again this often.
_REJUDGE_SECONDS = 10.0
# Messages of a job are read every two seconds, of a thousand jobs every fifty.
_HEAR_SECONDS = 2.0
_HEARD_PER_SECOND = 20.0
_LIVE_LOGS_PER_MINUTE = 30.0
_ENDED_LOGS_PER_MINUTE = 60.0
_ACTORS = 8
# After an act that the cluster or the store did not let happen.
_RETRY_SECONDS = 5.0
# Shorter silences of the API server are nobody's business.
_AWAY_SECONDS = 20.0


class KubernetesLauncher:
    """Raises MarinError where the kubeconfig leads nowhere; the cluster itself is first asked by `submit`."""

    def __init__(self, store: Store, state_folder: Path, options: BuildOptions, place: KubernetesPlace):
        self._store, self._place, self._options = store, place, options
        self._cluster = Cluster(place)
        self._cache = Cache()
        logs = RequestBudget(_ENDED_LOGS_PER_MINUTE, burst=_ENDED_LOGS_PER_MINUTE)
        self._acts = Lifecycle(self._cluster, self._cache, store, place, options, state_folder / "logs", logs)
        self._jobs: dict[str, KubernetesJob] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watches: dict[Kind, KindWatch] = {}
        self._pulse = Pulse(self._cluster)
        self._logs = LogReader(_LIVE_LOGS_PER_MINUTE)
        self._submitters = ThreadPoolExecutor(_ACTORS, thread_name_prefix="submit")
        self._actors = ThreadPoolExecutor(_ACTORS, thread_name_prefix="act")
        self._threads: list[threading.Thread] = []

    def submit(self, job: JobSpec) -> KubernetesJob:
        """Hand a job to the cluster, in the background; a job of that name which is there already is followed.

        Raises:
            MarinError: the job cannot be put into a manifest, for instance for want of such a pool.
        """
        kind = kind_of(manifest(job, self._place, store=self._store.root, plan="", options=self._options))
        with self._lock:
            known = self._jobs.get(job.name)
            if known and known.is_open:
                return known
            handle = KubernetesJob(job, kind, self._terms(job), self._acts.cancel)
            self._jobs[job.name] = handle
            self._start(kind)
        self._submitters.submit(self._guarded, handle, self._acts.submit)
        return handle

    def close(self) -> None:
        """Stop looking. Jobs that have not ended stay where they are."""
        self._closed.set()
        self._submitters.shutdown(wait=False, cancel_futures=True)
        self._actors.shutdown(wait=False, cancel_futures=True)
        for part in (*self._watches.values(), self._pulse, self._logs):
            part.stop()
        self._cache.wake()
        for thread in self._threads:
            thread.join(timeout=5)

    def _terms(self, job: JobSpec) -> Terms:
        place = self._place
        return Terms(
            max_failures=job.max_failures,
            max_preemptions=job.max_preemptions,
            pools=tuple(job.pools),
            region=place.region,
            namespace=place.namespace,
            queue=place.queue,
            max_queue_hours=place.max_queue_hours,
            max_run_hours=place.max_run_hours,
        )

    def _start(self, kind: Kind) -> None:
        """Start the watches that jobs of this kind need, and with the first of them all other threads."""
        kinds = [PODS, EVENTS, kind, *([WORKLOADS] if self._place.queue else [])]
        for wanted in kinds:
            if wanted not in self._watches:
                selector = OURS if wanted in (PODS, JOBS, JOBSETS) else {}
                watch = KindWatch(self._cluster, self._cache, wanted, self._place.namespace, selector)
                self._watches[wanted] = watch
                watch.start()
        if not self._threads:
            self._pulse.start()
            self._logs.start()
            for run in (self._judge_changes, self._hear_all):
                self._threads.append(threading.Thread(target=run, name=run.__name__, daemon=True))
                self._threads[-1].start()

    def _open(self) -> list[KubernetesJob]:
        with self._lock:
            for handle in [h for h in self._jobs.values() if not h.is_open]:
                del self._jobs[handle.job.name]
                self._cache.forget(handle.job.name)
                for log in handle.memory.logs.values():
                    self._logs.remove(log)
            return list(self._jobs.values())

    def _judge_changes(self) -> None:
        judged = 0.0
        while not self._closed.is_set():
            changed = self._cache.take_changed(timeout=1.0)
            handles = self._open()
            if time.monotonic() - judged > _REJUDGE_SECONDS:
                judged = time.monotonic()
                changed = {handle.job.name for handle in handles}
            for handle in handles:
                if handle.job.name in changed and handle.submitted.is_set():
                    self._guarded(handle, self._look)

    def _look(self, handle: KubernetesJob) -> None:
        """Judge one job, and have done what is to be done about it."""
        sight, verdict = self._judge(handle)
        if not handle.busy.is_set():
            handle.show(verdict, self._trouble())
        self._follow_logs(handle, sight)
        self._keep_failed_logs(handle, verdict, sight)
        if verdict.step is not Step.WAIT and not handle.busy.is_set():
            handle.busy.set()
            self._actors.submit(self._guarded, handle, self._act)

    def _judge(self, handle: KubernetesJob) -> tuple[Sight, Verdict]:
        with handle.judging:
            return self._judge_alone(handle, self._sight(handle), None)

    def _sight(self, handle: KubernetesJob) -> Sight:
        return self._cache.sight(handle.job.name, utc(time.time()))

    def _judge_alone(self, handle: KubernetesJob, sight: Sight, committed: bool | None) -> tuple[Sight, Verdict]:
        memory = handle.memory
        if sight.object and sight.object["metadata"]["uid"] != memory.uid:
            last = last_of(memory.ended) or memory.before
            memory.uid, memory.ended, memory.before = sight.object["metadata"]["uid"], {}, last
        memory.started = first_start(replace(sight, started=memory.started))
        sight = replace(
            sight,
            ended=memory.ended,
            before=memory.before,
            started=memory.started,
            told=dict(memory.told),
            committed=committed,
        )
        verdict = judge(sight, handle.terms)
        if sight.object:
            memory.ended = verdict.ended or {}
        else:
            shown = handle.status()
            verdict = replace(verdict, preemptions=shown.preemptions, failures=shown.failures)
        return sight, verdict

    def _act(self, handle: KubernetesJob) -> None:
        """The record decides, and what workers said of their failure is heard before it is told."""
        try:
            sight, verdict = self._judge_the_end(handle)
            if verdict.step is Step.RECREATE and sight.object:
                handle.show(verdict, None)
                self._acts.keep_logs(handle, verdict, sight.pods, is_last=True)
                self._acts.recreate(handle, sight.object, verdict)
            elif verdict.step is Step.FINISH:
                self._acts.finish(handle, sight.object, verdict, sight.pods)
        except Exception as error:
            handle.update(reason=in_one_line(error))
            self._closed.wait(_RETRY_SECONDS)
        finally:
            handle.busy.clear()
            self._cache.follow(handle.job.name) if handle.is_open else None

    def _judge_the_end(self, handle: KubernetesJob) -> tuple[Sight, Verdict]:
        """Judge with all that can be known. The record is looked for after everything else was seen, or a job that
        commits and ends meanwhile seems to have committed nothing."""
        committed = self._store.current(handle.job.artifact) is not None
        if not committed:
            look_again(self._cluster, self._cache, handle.kind, self._place.namespace, handle.job.name)
        seen = self._sight(handle)
        self._acts.hear(handle, sorted(seen.pods, key=pod_index))
        committed = committed or self._store.current(handle.job.artifact) is not None
        with handle.judging:
            return self._judge_alone(handle, seen, committed)

    def _trouble(self) -> str | None:
        """Why what is known may be old."""
        away = self._pulse.away()
        if away and away[0] > _AWAY_SECONDS:
            return f"{self._cluster.label} has not answered for {int(away[0] // 10 * 10)} s: {away[1]}"
        troubles = [self._watches[kind].trouble for kind in (PODS, JOBS, JOBSETS) if kind in self._watches]
        return next((words for words in troubles if words), None)

    def _follow_logs(self, handle: KubernetesJob, sight: Sight) -> None:
        """Have the log of rank 0 read while it runs."""
        for pod in sight.pods:
            running = pod.get("status", {}).get("phase") == "Running" and GONE_AT not in pod
            name = name_of(pod)
            if running and pod_index(pod) == (0, 0) and name not in handle.memory.logs:
                self._logs.add(self._acts.log_of(handle, name))
            elif not running and name in handle.memory.logs:
                self._logs.end(handle.memory.logs[name])

    def _keep_failed_logs(self, handle: KubernetesJob, verdict: Verdict, sight: Sight) -> None:
        """The cluster takes away a gang's pods as soon as one has failed."""
        for key, end in (verdict.ended or {}).items():
            if key not in handle.memory.kept and not end.failure.is_disruption and end.pod:
                handle.memory.kept.add(key)
                attempt = replace(verdict, culprit=end.pod, reason=end.words)
                self._actors.submit(self._guarded, handle, self._acts.keep_logs, attempt, sight.pods)

    def _hear_all(self) -> None:
        while not self._closed.is_set():
            began, handles = time.monotonic(), self._open()
            for handle in handles:
                if not self._closed.is_set() and not handle.busy.is_set():
                    sight = self._cache.sight(handle.job.name, utc(time.time()))
                    self._guarded(handle, self._acts.hear, list(_leads(sight.pods)))
            interval = max(_HEAR_SECONDS, len(handles) / _HEARD_PER_SECOND)
            self._closed.wait(max(0.1, began + interval - time.monotonic()))

    def _guarded(self, handle: KubernetesJob, act, *arguments) -> None:
        """Run in a thread that must not end: what goes wrong is told in the job's status."""
        try:
            act(handle, *arguments)
        except Exception as error:
            handle.update(reason=in_one_line(error))


def _leads(pods: Iterable[Raw]) -> Iterable[Raw]:
    """Pods of rank 0 that have begun to run."""
    return (
        pod for pod in pods if pod_index(pod) == (0, 0) and pod.get("status", {}).get("phase") not in (None, "Pending")
    )
