"""A small web server on this machine that speaks a dataset hub's protocol as `huggingface_hub` uses it, and fails on
demand: the tests of downloads ask it for files and then look at what it saw.

Large files are redirected to a CDN, which is this server under another host name. Plain files lie below `/web/`.
"""

import contextlib
import hashlib
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

# From this size on a file of a dataset is one of LFS.
LFS_BYTES = 1000


@dataclass(frozen=True)
class Dataset:
    """`gated`: the token that has access, if one is needed."""

    files: Mapping[str, bytes]
    commit: str = "c0ffee" + "0" * 34
    branch: str = "main"
    gated: str | None = None


@dataclass(frozen=True)
class Seen:
    """One request, and when it came (seconds of a monotonic clock)."""

    method: str
    path: str
    headers: Mapping[str, str]
    at: float

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer. `status`: this instead of the file, with `headers`. `cut_at`: the connection
    ends before this byte of the file: `short`, with a length that says nothing is missing, `unsaid`, with none.
    `flip`: that byte is wrong. `stall_at`: before this byte nothing more comes."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    short: bool = False
    unsaid: bool = False
    flip: int | None = None
    stall_at: int | None = None


@dataclass
class HubServer:
    datasets: dict[str, Dataset] = field(default_factory=dict)
    web: dict[str, bytes] = field(default_factory=dict)
    page_size: int = 1000
    # Whether plain files have ranges, and the headers that they have besides.
    ranges: bool = True
    web_headers: dict[str, str] = field(default_factory=dict)
    # The next faults, by the end of the path that is asked for.
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cdn(self) -> str:
        return f"http://localhost:{self.port}/cdn"

    def requests_for(self, ending: str, method: str = "GET") -> list[Seen]:
        """Requests whose path ends so, redirects to the CDN not counted twice."""
        return [s for s in self.seen if s.method == method and unquote(urlsplit(s.path).path).endswith(ending)]


class Served(Protocol):
    """What a server keeps: where it listens, and what lets go of the requests that it holds."""

    port: int
    released: threading.Event


def running(server: HubServer) -> "contextlib.AbstractContextManager[HubServer]":
    return served(server, _Handler)


@contextlib.contextmanager
def served[Hub: Served](server: Hub, handler: type[BaseHTTPRequestHandler]) -> Iterator[Hub]:
    """`server` on a port of this machine; its requests go to a `handler` whose `hub` it is."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"hub": server}))
    httpd.daemon_threads = True
    server.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.seen.append(Seen(self.command, self.path, headers, time.monotonic()))
        path = unquote(urlsplit(self.path).path)
        fault = self._fault(path)
        if fault.status:
            self._answer(fault.status, b"", dict(fault.headers))
        elif path.startswith("/cdn/"):
            self._file(self._by_digest(path.removeprefix("/cdn/").split("/")[0]), fault, {})
        elif path.startswith("/web/"):
            self._web(path.removeprefix("/web/"), fault)
        elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            self._api(found[1], found[2], found[3])
        elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3], fault)
        else:
            self._answer(404, b"")

    def _fault(self, path: str) -> Fault:
        for ending, faults in self.hub.faults.items():
            if path.endswith(ending) and faults:
                return faults.pop(0)
        return Fault()

    def _dataset(self, name: str, revision: str) -> Dataset | None:
        """The dataset, or None after an error was answered."""
        dataset = self.hub.datasets.get(name)
        if dataset is None:
            self._answer(401 if not self._token() else 404, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in (dataset.branch, dataset.commit, dataset.commit[:7]):
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            return dataset
        return None

    def _api(self, name: str, what: str, revision: str) -> None:
        dataset = self._dataset(name, revision)
        if dataset is None:
            return
        if what == "revision":
            info = {"id": name, "sha": dataset.commit, "siblings": [], "gated": "auto" if dataset.gated else False}
            self._answer(200, json.dumps(info).encode(), {"Content-Type": "application/json"})
            return
        query = parse_qs(urlsplit(self.path).query)
        start = int(query.get("cursor", ["0"])[0])
        entries = [self._entry(path, data) for path, data in sorted(dataset.files.items())]
        entries.insert(0, {"type": "directory", "path": "folder", "oid": "0" * 40, "size": 0})
        headers = {"Content-Type": "application/json"}
        if start + self.hub.page_size < len(entries):
            base = f"{self.hub.url}{urlsplit(self.path).path}?recursive=true&cursor={start + self.hub.page_size}"
            headers["Link"] = f'<{base}>; rel="next"'
        self._answer(200, json.dumps(entries[start : start + self.hub.page_size]).encode(), headers)

    @staticmethod
    def _entry(path: str, data: bytes) -> dict[str, Any]:
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
        if len(data) >= LFS_BYTES:
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry

    def _resolve(self, name: str, revision: str, path: str, fault: Fault) -> None:
        dataset = self._dataset(name, revision)
        if dataset is None:
            return
        if dataset.gated and self._token() != dataset.gated:
            self._answer(403 if self._token() else 401, b"", {"X-Error-Code": "GatedRepo"})
        elif path not in dataset.files:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        elif len(data := dataset.files[path]) >= LFS_BYTES:
            digest = hashlib.sha256(data).hexdigest()
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data)), "X-Repo-Commit": dataset.commit}
            self._answer(302, b"", {**linked, "Location": f"{self.hub.cdn}/{digest}/{path}"})
        else:
            self._file(data, fault, {"ETag": f'"{git_sha1(data)}"', "X-Repo-Commit": dataset.commit})

    def _web(self, path: str, fault: Fault) -> None:
        if path in self.hub.web:
            self._file(self.hub.web[path], fault, self.hub.web_headers, ranges=self.hub.ranges)
        else:
            self._answer(404, b"")

    def _by_digest(self, digest: str) -> bytes:
        files = [data for dataset in self.hub.datasets.values() for data in dataset.files.values()]
        return next(data for data in files if hashlib.sha256(data).hexdigest() == digest)

    def _token(self) -> str | None:
        value = self.headers.get("Authorization")
        return value.removeprefix("Bearer ") if value else None

    def _file(self, data: bytes, fault: Fault, headers: Mapping[str, str], ranges: bool = True) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if ranges else None
        condition = self.headers.get("If-Range")
        start = int(asked[1]) if asked and condition in (None, headers.get("ETag"), headers.get("Last-Modified")) else 0
        if start and start >= len(data):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        body = bytearray(data)
        if fault.flip is not None:
            body[fault.flip] ^= 1
        stop = next((at for at in (fault.cut_at, fault.stall_at) if at is not None), len(body))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if not fault.unsaid:
            self.send_header("Content-Length", str((stop if fault.short else len(body)) - start))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[start:stop])
        if fault.stall_at is not None:
            self.wfile.flush()
            self.hub.released.wait(60)
        self.close_connection = self.close_connection or stop < len(body)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
