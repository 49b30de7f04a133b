"""What is done about a job on the cluster: create or attach, create again, keep its logs, clean up after it."""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from marin_core.build import BuildOptions
from marin_core.errors import MarinError, in_one_line
from marin_core.jobs.kubernetes import objects
from marin_core.jobs.kubernetes.cache import Cache
from marin_core.jobs.kubernetes.cluster import ApiError, Cluster, Unreachable
from marin_core.jobs.kubernetes.job import KubernetesJob
from marin_core.jobs.kubernetes.judge import Verdict
from marin_core.jobs.kubernetes.logs import PodLog, RequestBudget
from marin_core.jobs.kubernetes.manifests import TTL_SECONDS, manifest
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.kubernetes.sight import GONE_AT, Raw, name_of, pod_index
from marin_core.jobs.messages import LOGS_FOLDER, MessageReader, messages_folder
from marin_core.jobs.spec import FailureClass, JobState
from marin_core.store import Store

# A server that has not answered for so long may be the wrong one.
_PATIENCE_SECONDS = 60.0
_RETRY_SECONDS = 2.0
_QUOTA_SECONDS = 15.0
_CANCEL_SECONDS = 30.0
# How long the end of a job is held up until its object is gone: a gang's waits for its pods, which may be saving.
_GONE_SECONDS = 5.0
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
        """Create the job's object or attach to the one there is; a refusal that lasts ends the job as failed.

        A server that does not answer is asked for as long as the job is wanted: it may have made the object already.
        """
        began = time.monotonic()
        with handle.acting:
            while not handle.cancelled.is_set() and not handle.detached.is_set():
                try:
                    if self._create_or_attach(handle):
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
                    is_late = time.monotonic() - began > _PATIENCE_SECONDS
                    asked = "; is the cluster up, and the kubeconfig's address right?" if is_late else ""
                    handle.update(reason=f"not submitted yet: {error}{asked}")
                    pause = _RETRY_SECONDS
                except Exception as error:  # the store, for one, cannot be reached
                    handle.update(state=JobState.FAILED, reason=in_one_line(error), failure=FailureClass.UNKNOWN)
                    return
                handle.cancelled.wait(pause)

    def recreate(self, handle: KubernetesJob, found: Raw, verdict: Verdict) -> None:
        """Replace an object that the cluster gave up, with the counts so far; it stays that of the run that made it.
        Another follower may be faster."""
        with handle.acting:
            if handle.cancelled.is_set() or handle.detached.is_set():
                return
            name, namespace = handle.job.name, self.place.namespace
            objects.delete(self.cluster, handle.kind, namespace, name, uid=found["metadata"]["uid"])
            options = replace(self.options, dagster_run=objects.dagster_run(found))
            # Once the old object is gone this must not be given up: the job would pass for deleted from outside.
            while not handle.cancelled.is_set() and not handle.detached.is_set():
                try:
                    made = self._create(handle, options, verdict.preemptions, verdict.failures)
                except (ApiError, Unreachable) as error:
                    if getattr(error, "status", None) == 409:
                        made = objects.find(self.cluster, handle.kind, namespace, name)
                    elif objects.is_passing(error):
                        handle.update(reason=f"not submitted again yet: {error}")
                        handle.cancelled.wait(_RETRY_SECONDS)
                        continue
                    else:
                        raise
                if made and made["metadata"]["uid"] != found["metadata"]["uid"]:
                    self.cache.put(made, time.monotonic())
                return

    def finish(self, handle: KubernetesJob, found: Raw | None, verdict: Verdict, pods: Iterable[Raw]) -> None:
        """Keep what is worth keeping, delete the job from the cluster, and make its status final.

        Whatever hinders the first two is told in the status, and holds up the end of none but a failed job: that one
        may still run.

        Raises:
            MarinError: the cluster cannot delete a failed job at the moment.
        """
        pods = list(pods)
        troubles = [self._keep(handle, verdict, pods)]
        with handle.acting:
            if found is not None and self._is_of_this_store(found):
                troubles.append(self._clean_up(handle, found, verdict))
            reason = "; ".join(words for words in (verdict.reason, *troubles) if words)
            handle.show(replace(verdict, reason=reason), None)
            self.cache.forget(handle.job.name)
        if verdict.state is JobState.SUCCEEDED:
            # After the end is told, because there may be thousands. Nobody misses them, nor minds those that stay.
            with handle.keeping, contextlib.suppress(Exception):
                self.store.objects.delete(messages_folder(handle.job.name))

    def _keep(self, handle: KubernetesJob, verdict: Verdict, pods: list[Raw]) -> str | None:
        try:
            if verdict.state is JobState.FAILED:
                self.keep_logs(handle, verdict, pods, is_last=True)
            else:
                self._complete_logs(handle, pods)
        except Exception as error:  # of whatever the store's back end is made of
            return f"its logs could not be kept: {in_one_line(error)}"
        return None

    def _clean_up(self, handle: KubernetesJob, found: Raw, verdict: Verdict) -> str | None:
        kind, namespace, name = handle.kind, self.place.namespace, handle.job.name
        try:
            uid = found["metadata"]["uid"]
            objects.delete(self.cluster, kind, namespace, name, uid=uid, seconds=_GONE_SECONDS)
        except MarinError as error:
            if verdict.state is JobState.FAILED and objects.is_passing(error):
                raise
            hours = f"the cluster deletes it {TTL_SECONDS // 3600} h after its end"
            return f"still on the cluster: {error}; {hours}, or `{self._by_hand(handle)}` does"
        return None

    def cancel(self, handle: KubernetesJob) -> None:
        """Delete the job from the cluster and wait until it is gone, or sure to go as soon as its pods have ended; a
        create that is under way is waited for. What another run started is left to that run."""
        handle.cancelled.set()
        with handle.acting:
            if handle.status().state.is_final:
                return
            try:
                reason = self._delete_for_good(handle)
            except MarinError as error:
                where = "still on the cluster" if isinstance(error, ApiError) else "perhaps still on the cluster"
                reason = f"cancelled, but {where}: {error}; run `{self._by_hand(handle)}`"
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
            handle.link({"log": url})
            handle.update(log_tail=tail)

    def _keep_log(self, handle: KubernetesJob, pod: str, why: str) -> str:
        """The log's URL. A job that has succeeded keeps none: its folder is gone, or going."""
        log = self.log_of(handle, pod)
        late = "too many pods fail at once to read all their logs"
        trouble = log.read(is_over=True) if self.log_budget.take(_CANCEL_SECONDS) else late
        lines = [*log.tail, *([f"[the rest of this log could not be read: {trouble}]"] if trouble else []), f"[{why}]"]
        path = f"{messages_folder(handle.job.name)}/{LOGS_FOLDER}/{pod}.log"
        data = ("\n".join(lines) + "\n").encode()
        with handle.keeping:
            if handle.status().state is not JobState.SUCCEEDED and not self.store.objects.create(path, data):
                stored = self.store.objects.read(path)
                self.store.objects.replace(path, data, stored.version) if stored else None
        return f"{self.store.root.rstrip('/')}/{path}"

    def _complete_logs(self, handle: KubernetesJob, pods: Iterable[Raw]) -> None:
        """Those of pods that are still there; the others' were read to their end before, as far as the budget went."""
        for pod in pods:
            log = handle.memory.logs.get(name_of(pod))
            if log and GONE_AT not in pod and self.log_budget.take(5):
                log.read(is_over=True)

    def _create_or_attach(self, handle: KubernetesJob) -> bool:
        """Whether there is something to follow now; the status tells why if there is not."""
        namespace, name = self.place.namespace, handle.job.name
        while not handle.cancelled.is_set() and not handle.status().state.is_final:
            try:
                self.cache.put(self._create(handle, self.options, 0, 0), time.monotonic())
                return True
            except ApiError as error:
                if error.status != 409:
                    raise
            found = objects.find(self.cluster, handle.kind, namespace, name)
            if found is None:
                continue
            if not self._is_of_this_store(found):
                reason = (
                    f"the job {name} in namespace {namespace} builds it for another store, "
                    f"{objects.store_of(found) or 'which it does not name'}, and not for {self.store.root}; give this "
                    "profile another namespace, or wait until that job has ended"
                )
                handle.update(state=JobState.FAILED, reason=reason, failure=FailureClass.CONFIGURATION)
            elif found["metadata"].get("deletionTimestamp"):
                handle.update(reason="waiting until an earlier job of this name is deleted")
                handle.cancelled.wait(1)
            elif objects.is_over(found) and self.store.current(handle.job.artifact) is None:
                objects.delete(self.cluster, handle.kind, namespace, name, uid=found["metadata"]["uid"])
            else:
                handle.say(f"attached to the job {name} that {objects.who_started(found)}")
                self.cache.put(found, time.monotonic())
                return True
        return False

    def _is_of_this_store(self, found: Raw) -> bool:
        return objects.store_of(found) == self.store.root

    def _create(self, handle: KubernetesJob, options: BuildOptions, preemptions: int, failures: int) -> dict:
        body = manifest(
            handle.job,
            self.place,
            store=self.store.root,
            plan=self.store.save_plan(handle.job.artifact),
            options=options,
            preemptions=preemptions,
            failures=failures,
        )
        return objects.create(self.cluster, self.place.namespace, body)

    def _delete_for_good(self, handle: KubernetesJob) -> str:
        """What became of it, in words. Raises MarinError if it could not be deleted."""
        kind, namespace, name = handle.kind, self.place.namespace, handle.job.name
        deadline = time.monotonic() + _CANCEL_SECONDS
        while True:
            try:
                found = objects.find(self.cluster, kind, namespace, name)
                if found is None or not self._is_of_this_store(found):
                    return "cancelled"
                run = objects.dagster_run(found)
                if run not in (None, self.options.dagster_run):
                    handle.detach()
                    by_hand = self._by_hand(handle)
                    return f"left to the run that started it, Dagster run {run}; to end it, run `{by_hand}`"
                uid = found["metadata"]["uid"]
                if objects.delete(self.cluster, kind, namespace, name, uid=uid, seconds=_GONE_SECONDS):
                    return "cancelled"
                if found["metadata"].get("deletionTimestamp"):
                    return "cancelled; the cluster deletes it as soon as its pods have ended"
            except MarinError as error:
                if not objects.is_passing(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _by_hand(self, handle: KubernetesJob) -> str:
        return f"kubectl -n {self.place.namespace} delete {handle.kind.plural} {handle.job.name}"
