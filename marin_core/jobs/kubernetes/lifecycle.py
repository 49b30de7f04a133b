"""What is done about a job on the cluster: create or attach, create again, keep its logs, clean up after it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from marin_core.build import BuildOptions
from marin_core.errors import MarinError
from marin_core.jobs.kubernetes import objects
from marin_core.jobs.kubernetes.cache import Cache
from marin_core.jobs.kubernetes.cluster import ApiError, Cluster, Unreachable
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.judge import Verdict
from marin_core.jobs.kubernetes.logs import PodLog, RequestBudget
from marin_core.jobs.kubernetes.manifests import manifest
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.sight import GONE_AT, Raw, name_of, pod_index
from marin_core.jobs.messages import LOGS_FOLDER, MessageReader, messages_folder
from marin_core.jobs.spec import FailureClass, JobState
from marin_core.store import Store

# How long a server that does not answer is asked to take a new job.
_SUBMIT_SECONDS = 60.0
_RETRY_SECONDS = 2.0
_QUOTA_SECONDS = 15.0
_CANCEL_SECONDS = 30.0
_TAIL_LINES = 20
# A gang's failed ranks mostly say the same.
_MOST_PODS_HEARD = 16


@dataclass(frozen=True)
class Lifecycle:
    """The acts of a launcher, each for one job. They may be called from any thread; per job one at a time."""

    cluster: Cluster
    cache: Cache
    store: Store
    place: KubernetesPlace
    options: BuildOptions
    logs_folder: Path
    # Requests for the logs of pods that ended, over all jobs.
    log_budget: RequestBudget

    def submit(self, handle: KubernetesJob) -> None:
        """Create the job's object or attach to the one there is; a refusal that lasts ends the job as failed."""
        deadline = time.monotonic() + _SUBMIT_SECONDS
        with handle.acting:
            while not handle.cancelled.is_set() and not handle.detached.is_set():
                try:
                    self._create_or_attach(handle)
                    handle.submitted.set()
                    self.cache.follow(handle.job.name)
                    return
                except ApiError as error:
                    words = objects.remedy(error, handle.kind, self.place.namespace)
                    if not objects.is_passing(error):
                        handle.update(state=JobState.FAILED, reason=words, failure=FailureClass.CONFIGURATION)
                        return
                    handle.update(reason=f"not submitted yet: {words}")
                    pause = _QUOTA_SECONDS
                except Unreachable as error:
                    if time.monotonic() > deadline:
                        reason = f"{error}; is the cluster up, and the kubeconfig's address right?"
                        handle.update(state=JobState.FAILED, reason=reason, failure=FailureClass.UNKNOWN)
                        return
                    handle.update(reason=f"not submitted yet: {error}")
                    pause = _RETRY_SECONDS
                except Exception as error:  # the store, for one, cannot be reached
                    said = str(error) if isinstance(error, MarinError) else f"{type(error).__name__}: {error}"
                    handle.update(state=JobState.FAILED, reason=" ".join(said.split()), failure=FailureClass.UNKNOWN)
                    return
                handle.cancelled.wait(pause)

    def recreate(self, handle: KubernetesJob, found: Raw, verdict: Verdict) -> None:
        """Replace an object that the cluster gave up, with the counts so far. Another follower may be faster."""
        with handle.acting:
            if handle.cancelled.is_set() or handle.detached.is_set():
                return
            name, namespace = handle.job.name, self.place.namespace
            objects.delete(self.cluster, handle.kind, namespace, name, uid=found["metadata"]["uid"])
            try:
                made = self._create(handle, verdict.preemptions, verdict.failures)
            except ApiError as error:
                if error.status != 409:
                    raise
                made = objects.find(self.cluster, handle.kind, namespace, name)
            if made and made["metadata"]["uid"] != found["metadata"]["uid"]:
                self.cache.put(made, time.monotonic())

    def finish(self, handle: KubernetesJob, found: Raw | None, verdict: Verdict, pods: Iterable[Raw]) -> None:
        """Keep what is worth keeping, delete the job from the cluster, and make its status final."""
        pods = list(pods)
        if verdict.state is JobState.FAILED:
            self.keep_logs(handle, verdict, pods, is_last=True)
        else:
            self._complete_logs(handle, pods)
        with handle.acting:
            if found is not None:
                uid = found["metadata"]["uid"]
                objects.delete(self.cluster, handle.kind, self.place.namespace, handle.job.name, uid=uid)
            if verdict.state is JobState.SUCCEEDED:
                self.store.objects.delete(messages_folder(handle.job.name))
            handle.show(verdict, None)
            self.cache.forget(handle.job.name)

    def cancel(self, handle: KubernetesJob) -> None:
        """Delete the job from the cluster and wait until it is gone; a create that is under way is waited for."""
        handle.cancelled.set()
        with handle.acting:
            if handle.status().state.is_final:
                return
            reason = "cancelled"
            try:
                self._delete_for_good(handle)
            except MarinError as error:
                what = f"kubectl -n {self.place.namespace} delete {handle.kind.plural} {handle.job.name}"
                reason = f"cancelled, but still on the cluster: {error}; run `{what}`"
            handle.update(state=JobState.CANCELLED, reason=reason, failure=None)
            self.cache.forget(handle.job.name)

    def hear(self, handle: KubernetesJob, pods: Iterable[Raw]) -> None:
        """Read the messages of pods."""
        readers = handle.memory.readers
        with handle.hearing:
            for name in [name_of(pod) for pod in pods][:_MOST_PODS_HEARD]:
                if name not in readers:
                    readers[name] = MessageReader(self.store.objects, handle.job.name, name)
                handle.hear(name, readers[name])

    def log_of(self, handle: KubernetesJob, pod: str) -> PodLog:
        """The one cursor in a pod's log."""
        file = self.logs_folder / f"{pod}.log"
        return handle.memory.logs.setdefault(pod, PodLog(self.cluster, self.place.namespace, pod, file))

    def keep_logs(self, handle: KubernetesJob, verdict: Verdict, pods: Iterable[Raw], *, is_last: bool = False) -> None:
        """Write the end of the log of the pod that failed, and of rank 0, to the store, and show the former. The last
        attempt's is not to be hidden by that of an earlier one."""
        leads = [name_of(pod) for pod in pods if pod_index(pod) == (0, 0)]
        culprit = verdict.culprit or (leads[-1] if leads else None)
        if not culprit:
            return
        url = self._keep_log(handle, culprit, verdict.reason)
        for lead in leads[-1:]:
            if lead != culprit:
                self._keep_log(handle, lead, f"pod {culprit} of its gang: {verdict.reason}")
        if is_last or not handle.busy.is_set():
            tail = tuple(self.log_of(handle, culprit).tail)[-_TAIL_LINES:]
            handle.update(log_tail=tail, links={**handle.status().links, "log": url})

    def _keep_log(self, handle: KubernetesJob, pod: str, why: str) -> str:
        log = self.log_of(handle, pod)
        late = "too many pods fail at once to read all their logs"
        trouble = log.read(is_over=True) if self.log_budget.take(_CANCEL_SECONDS) else late
        lines = [*log.tail, *([f"[the rest of this log could not be read: {trouble}]"] if trouble else []), f"[{why}]"]
        path = f"{messages_folder(handle.job.name)}/{LOGS_FOLDER}/{pod}.log"
        data = ("\n".join(lines) + "\n").encode()
        if not self.store.objects.create(path, data) and (stored := self.store.objects.read(path)):
            self.store.objects.replace(path, data, stored.version)
        return f"{self.store.root.rstrip('/')}/{path}"

    def _complete_logs(self, handle: KubernetesJob, pods: Iterable[Raw]) -> None:
        """Those of pods that are still there; the others' were read to their end before, as far as the budget went."""
        for pod in pods:
            log = handle.memory.logs.get(name_of(pod))
            if log and GONE_AT not in pod and self.log_budget.take(5):
                log.read(is_over=True)

    def _create_or_attach(self, handle: KubernetesJob) -> None:
        namespace, name = self.place.namespace, handle.job.name
        while not handle.cancelled.is_set():
            try:
                self.cache.put(self._create(handle, 0, 0), time.monotonic())
                return
            except ApiError as error:
                if error.status != 409:
                    raise
            found = objects.find(self.cluster, handle.kind, namespace, name)
            if found is None:
                continue
            if found["metadata"].get("deletionTimestamp"):
                handle.update(reason="waiting until an earlier job of this name is deleted")
                handle.cancelled.wait(1)
            elif objects.is_over(found) and self.store.current(handle.job.artifact) is None:
                objects.delete(self.cluster, handle.kind, namespace, name, uid=found["metadata"]["uid"])
            else:
                handle.say(f"attached to the job {name} that {objects.who_started(found)}")
                self.cache.put(found, time.monotonic())
                return

    def _create(self, handle: KubernetesJob, preemptions: int, failures: int) -> dict:
        body = manifest(
            handle.job,
            self.place,
            store=self.store.root,
            plan=self.store.save_plan(handle.job.artifact),
            options=self.options,
            preemptions=preemptions,
            failures=failures,
        )
        return objects.create(self.cluster, self.place.namespace, body)

    def _delete_for_good(self, handle: KubernetesJob) -> None:
        deadline = time.monotonic() + _CANCEL_SECONDS
        while True:
            try:
                left = deadline - time.monotonic()
                objects.delete(self.cluster, handle.kind, self.place.namespace, handle.job.name, seconds=max(1.0, left))
                return
            except MarinError as error:
                if not objects.is_passing(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)
