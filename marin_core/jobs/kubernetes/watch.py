"""Watching a namespace: one stream per kind of object keeps the cache true, however many jobs there are."""

import json
import random
import threading
import time
from collections.abc import Mapping
from typing import Any

from marin_core.jobs.kubernetes.cache import Cache
from marin_core.jobs.kubernetes.cluster import PODS, ApiError, Cluster, Kind, Stream, Unreachable
from marin_core.jobs.kubernetes.sight import JOB_LABEL, MANAGED_BY, MANAGER
from marin_core.jobs.kubernetes.times import utc

OURS: Mapping[str, str] = {"labelSelector": f"{MANAGED_BY}={MANAGER}"}
# The server sends a bookmark every minute; a stream that is silent for longer is dead.
_SILENCE_SECONDS = 75.0
_PAGE = 500
_LONGEST_PAUSE = 30.0
_REFUSED_PAUSE = 30.0


class KindWatch:
    """Lists objects of a kind, then follows their changes in a thread of its own until `stop`.

    A broken stream goes on where it was; when the server no longer has that past (410), everything is listed anew.
    """

    def __init__(self, cluster: Cluster, cache: Cache, kind: Kind, namespace: str, selector: Mapping[str, str] = {}):
        self._cluster, self._cache, self._kind, self._namespace = cluster, cache, kind, namespace
        self._selector = dict(selector)
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        # What keeps it from watching, in words; None if all is well.
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._stream:
            self._stream.close()

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        version: str | None = None
        pause = 0.0
        while not self._stopped.wait(pause):
            try:
                if version is None:
                    version = self._list()
                self.trouble = None
                version, lived = self._follow(version)
                pause = 0.0 if lived else _longer(pause)
            except ApiError as error:
                version = None
                pause = 0.2 if error.status == 410 else self._refuse(error)
            except Unreachable:
                pause = _longer(pause)
            except Exception as error:  # the thread must go on, whatever the server sends
                version, pause = None, _longer(pause)
                words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                self._tell(f"cannot read what the server says of {self._kind.plural}: {words}; listing them anew")

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        self._cache.wake()

    def _refuse(self, error: ApiError) -> float:
        if error.status in (401, 403):
            self._tell(
                f"may not watch {self._kind.plural} in namespace {self._namespace}: {error.said}; grant get, list and "
                f"watch on {self._kind.plural} in the Role of whoever submits"
            )
        return _REFUSED_PAUSE * random.uniform(0.8, 1.2)

    def _list(self) -> str:
        asked_at = time.monotonic()
        items, version = list_all(self._cluster, self._kind, self._namespace, self._selector)
        self._cache.replace(self._kind, items, asked_at, utc(time.time()))
        return version

    def _follow(self, version: str) -> tuple[str, bool]:
        """Follow until the stream ends; the version to go on from, and whether the stream said anything.

        Raises:
            ApiError: with status 410, the past of `version` is gone.
            Unreachable: there is no server to follow.
        """
        query = {
            **self._selector,
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": random.randint(1500, 2100),
        }
        self._stream = self._cluster.open(self._kind.path(self._namespace), query, _SILENCE_SECONDS)
        lived = False
        try:
            for line in self._stream:
                change = json.loads(line)
                version, lived = self._apply(change["type"], change["object"], version), True
        except Unreachable:
            pass
        finally:
            self._stream.close()
        return version, lived

    def _apply(self, change: str, item: dict[str, Any], version: str) -> str:
        if change == "ERROR":
            raise ApiError(item.get("code", 500), item.get("message", ""))
        if change != "BOOKMARK":
            self._cache.apply(self._kind, change, item, utc(time.time()))
        return item["metadata"]["resourceVersion"]


def list_all(
    cluster: Cluster, kind: Kind, namespace: str, selector: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """All objects of a kind, page by page, and the version of the list. Raises ApiError, Unreachable."""
    items, more = [], ""
    while True:
        query = {**selector, "limit": _PAGE, **({"continue": more} if more else {})}
        page = cluster.request("GET", kind.path(namespace), query)
        items += page["items"]
        more = page["metadata"].get("continue")
        if not more:
            return items, page["metadata"]["resourceVersion"]


def look_again(cluster: Cluster, cache: Cache, kind: Kind, namespace: str, name: str) -> None:
    """Ask for a job's pods, and then for its object: each watch may be behind the other.

    Raises:
        ApiError, Unreachable: nobody knows more than the watches.
    """
    pods, _ = list_all(cluster, PODS, namespace, {"labelSelector": f"{JOB_LABEL}={name}"})
    try:
        found = cluster.request("GET", kind.path(namespace, name))
    except ApiError as error:
        # That it is gone is for the watch to tell.
        if error.status != 404:
            raise
        found = None
    cache.learn(name, kind, pods, found)


class Pulse:
    """Asks the server for its version every so often: is it there at all?"""

    def __init__(self, cluster: Cluster, every_seconds: float = 20.0):
        self._cluster, self._every = cluster, every_seconds
        self._stopped = threading.Event()
        self._answered = time.monotonic()
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def away(self) -> tuple[float, str] | None:
        """(seconds since its last answer, what is wrong), None while it answers."""
        error = self._error
        return (time.monotonic() - self._answered, error) if error else None

    def _run(self) -> None:
        while not self._stopped.wait(5.0 if self._error else self._every):
            try:
                self._cluster.request("GET", "/version", timeout=10)
                self._answered, self._error = time.monotonic(), None
            except ApiError:  # even a refusal is an answer
                self._answered, self._error = time.monotonic(), None
            except Unreachable as error:
                self._error = str(error)


def _longer(pause: float) -> float:
    return min(_LONGEST_PAUSE, max(0.5, pause * 2)) * random.uniform(0.8, 1.2)
