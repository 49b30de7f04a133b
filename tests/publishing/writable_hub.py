"""A small hub on this machine that is written to as `huggingface_hub` writes: repositories with commits, branches, tags
and LFS storage, behind the requests that the library makes. Its sibling for downloads is `tests/data/hub_server.py`.

It keeps what tests ask afterwards: every request, every object that was sent, and what readers saw of `main` and of the
tags after each change.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.data.hub_server import Fault, Seen, git_sha1, served

# What goes to the large storage: by name, as .gitattributes say, or by size.
LFS_BYTES = 100_000
LFS_SUFFIXES = (".safetensors", ".parquet")
WRITER = "hf_writer"
INITIAL = {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}


@dataclass(frozen=True)
class Pointer:
    """What git holds of a large file."""

    oid: str
    size: int

    @property
    def text(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.oid}\nsize {self.size}\n".encode()


Blob = bytes | Pointer


@dataclass
class Repo:
    kind: str
    private: bool
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    large: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    # What a reader finds at `main` and at each tag, after every change: ref -> path -> SHA-256 of the content.
    views: list[dict[str, dict[str, str]]] = field(default_factory=list)

    def resolve(self, revision: str) -> str | None:
        named = self.branches.get(revision) or self.tags.get(revision)
        return named or next((sha for sha in self.commits if len(revision) >= 7 and sha.startswith(revision)), None)

    def add_commit(self, branch: str, files: dict[str, Blob], message: str) -> str:
        text = json.dumps([len(self.commits), sorted((p, oid_of(b)) for p, b in files.items())])
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        self.messages.append((branch, message))
        self.look()
        return sha

    def content(self, revision: str) -> dict[str, bytes]:
        sha = self.resolve(revision)
        assert sha
        return {p: self.large[b.oid] if isinstance(b, Pointer) else b for p, b in self.commits[sha].items()}

    def look(self) -> None:
        refs = ["main", *self.tags]
        view = {
            ref: {path: hashlib.sha256(data).hexdigest() for path, data in self.content(ref).items()} for ref in refs
        }
        self.views.append(view)


def oid_of(blob: Blob) -> str:
    return git_sha1(blob.text if isinstance(blob, Pointer) else blob)


@dataclass
class WritableHub:
    """`tokens` maps a token to the namespaces that it may write to. Objects of at least `part_bytes` come in parts."""

    tokens: dict[str, list[str]] = field(default_factory=lambda: {WRITER: ["lab"]})
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    part_bytes: int = 100_000
    # The next faults, by the end of the path that is asked for; a fault that stalls holds the request until `released`.
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    seen: list[Seen] = field(default_factory=list)
    # SHA-256 of every object that arrived whole, in order.
    arrived: list[str] = field(default_factory=list)
    # The objects whose bytes are spoilt after they arrived, by SHA-256.
    spoils: set[str] = field(default_factory=set)
    port: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    stalled: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def model(self, name: str) -> Repo:
        return self.repos["model", name]

    def dataset(self, name: str) -> Repo:
        return self.repos["dataset", name]

    def requests(self, method: str, pattern: str) -> list[Seen]:
        return [s for s in self.seen if s.method == method and re.search(pattern, unquote(s.path))]

    def add_repo(self, kind: str, name: str, *, private: bool = False) -> Repo:
        repo = self.repos[kind, name] = Repo(kind, private)
        repo.add_commit("main", dict(INITIAL), "initial commit")
        return repo


def running(hub: WritableHub) -> "contextlib.AbstractContextManager[WritableHub]":
    return served(hub, _Handler)


class Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = "", **body: str):
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {"X-Error-Message": message}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: WritableHub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.seen.append(Seen(self.command, self.path, headers, time.monotonic()))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        fault = self._fault(path)
        if fault.stall_at is not None:
            self.hub.stalled.set()
            self.hub.released.wait(60)
        if fault.cut_at is not None:
            self.close_connection = True
            return
        if fault.status:
            self._answer(fault.status, b"", fault.headers)
            return
        try:
            with self.hub.lock:
                self._route(path, body)
        except Refused as refused:
            self._answer(refused.status, json.dumps(refused.body).encode(), refused.headers)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

    def _fault(self, path: str) -> Fault:
        for ending, faults in self.hub.faults.items():
            if path.endswith(ending) and faults:
                return faults.pop(0)
        return Fault()

    def _route(self, path: str, body: bytes) -> None:
        if path.startswith("/storage/"):  # signed links: no token
            self._storage(path.removeprefix("/storage/"), body)
            return
        self._token()
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate(json.loads(body)["content"])
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(.+))?", path):
            self._api(self._repo(found[1], found[2]), found[2], *(found[3] or "revision/main").split("/", 1), body=body)
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            self._batch(self._repo("dataset" if found[1] else "model", found[2]), found[2], json.loads(body))
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(self._repo("dataset" if found[1] else "model", found[2]), found[3], found[4])
        else:
            raise Refused(404)

    def _token(self) -> list[str]:
        """The namespaces that the sender may write to."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.hub.tokens:
            raise Refused(401, message="Invalid credentials in Authorization header")
        return self.hub.tokens[token]

    def _may_write(self, name: str) -> None:
        if name.split("/")[0] not in self._token():
            raise Refused(403, message=f"You don't have the rights to create or change {name}")

    def _repo(self, kind: str, name: str) -> Repo:
        if (kind, name) not in self.hub.repos:
            raise Refused(404, "RepoNotFound", "Repository not found")
        return self.hub.repos[kind, name]

    def _create(self, asked: Mapping[str, Any]) -> None:
        name, kind = f"{asked['organization']}/{asked['name']}", asked.get("type", "model")
        self._may_write(name)
        url = f"{self.hub.url}/{'datasets/' if kind == 'dataset' else ''}{name}"
        if (kind, name) in self.hub.repos:
            raise Refused(409, message="You already created this repo", url=url)
        self.hub.add_repo(kind, name, private=asked.get("visibility") == "private")
        self._json({"url": url, "name": name})

    def _validate(self, card: str) -> None:
        block = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
        try:
            metadata = yaml.safe_load(block[1]) if block else None
        except yaml.YAMLError as error:
            self._answer(400, json.dumps({"errors": [{"message": str(error)}]}).encode())
            return
        warnings = [] if isinstance(metadata, dict) else [{"message": "empty or missing yaml metadata"}]
        self._json({"warnings": warnings, "errors": []})

    def _api(self, repo: Repo, name: str, what: str, rest: str = "", *, body: bytes) -> None:
        if self.command != "GET" and what not in ("paths-info",):
            self._may_write(name)
        match self.command, what:
            case "GET", "revision":
                self._json({"id": name, "sha": self._commit_of(repo, rest), "private": repo.private, "siblings": []})
            case "GET", "tree":
                files = repo.commits[self._commit_of(repo, rest.split("/")[0])]
                self._json([self._entry(path, blob) for path, blob in sorted(files.items())])
            case "GET", "refs":
                self._json({"branches": refs("heads", repo.branches), "converts": [], "tags": refs("tags", repo.tags)})
            case "POST", "branch":
                if rest in repo.branches:
                    raise Refused(409, message="Reference already exists")
                repo.branches[rest] = self._commit_of(repo, json.loads(body).get("startingPoint", "main"))
                self._json({})
            case "POST", "tag":
                tag = json.loads(body)["tag"]
                if tag in repo.tags:
                    raise Refused(409, message="Tag reference exists already")
                repo.tags[tag] = self._commit_of(repo, rest)
                repo.look()
                self._json({})
            case "DELETE", "tag":
                if repo.tags.pop(rest, None) is None:
                    raise Refused(404, "RevisionNotFound")
                repo.look()
                self._json({})
            case "POST", "preupload":
                self._preupload(repo.commits[self._commit_of(repo, rest)], json.loads(body)["files"])
            case "POST", "paths-info":
                files = repo.commits[self._commit_of(repo, rest)]
                paths = parse_qs(body.decode()).get("paths", [])
                self._json([self._entry(path, files[path]) for path in paths if path in files])
            case "POST", "commit":
                self._commit(repo, name, rest, [json.loads(line) for line in body.splitlines()])
            case _:  # xet-write-token among others: this hub has no such storage
                raise Refused(404)

    def _commit_of(self, repo: Repo, revision: str) -> str:
        sha = repo.resolve(revision)
        if sha is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    @staticmethod
    def _entry(path: str, blob: Blob) -> dict[str, Any]:
        if isinstance(blob, bytes):
            return {"type": "file", "path": path, "size": len(blob), "oid": oid_of(blob)}
        lfs = {"oid": blob.oid, "size": blob.size, "pointerSize": len(blob.text)}
        return {"type": "file", "path": path, "size": blob.size, "oid": oid_of(blob), "lfs": lfs}

    def _preupload(self, there: Mapping[str, Blob], files: list[Mapping[str, Any]]) -> None:
        def answer(file: Mapping[str, Any]) -> dict[str, Any]:
            large = file["size"] >= LFS_BYTES or file["path"].endswith(LFS_SUFFIXES)
            blob = there.get(file["path"])
            oid = None if blob is None else blob.oid if isinstance(blob, Pointer) else oid_of(blob)
            mode = "lfs" if large else "regular"
            return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

        self._json({"files": [answer(file) for file in files]})

    def _batch(self, repo: Repo, name: str, asked: Mapping[str, Any]) -> None:
        self._may_write(name)

        def answer(oid: str, size: int) -> dict[str, Any]:
            if oid in repo.large:
                return {"oid": oid, "size": size}
            base = f"{self.hub.url}/storage/{repo.kind}/{name}"
            verify = {"href": f"{base}/verify"}
            if size < self.hub.part_bytes:
                return {"oid": oid, "size": size, "actions": {"upload": {"href": f"{base}/{oid}"}, "verify": verify}}
            count = -(-size // self.hub.part_bytes)
            parts = {f"{n:05d}": f"{base}/{oid}/{n}" for n in range(1, count + 1)}
            upload = {"href": f"{base}/complete", "header": {"chunk_size": str(self.hub.part_bytes), **parts}}
            return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}}

        self._json({"objects": [answer(o["oid"], o["size"]) for o in asked["objects"]], "transfer": "basic"})

    def _storage(self, path: str, body: bytes) -> None:
        kind, owner, name, what, *part = path.split("/")
        repo = self.hub.repos[kind, f"{owner}/{name}"]
        if what == "verify":
            asked = json.loads(body)
            if len(repo.large.get(asked["oid"], b"")) != asked["size"]:
                raise Refused(422, message="the object is not there")
        elif what == "complete":
            asked = json.loads(body)
            parts = repo.parts.pop(asked["oid"])
            assert [p["etag"] for p in asked["parts"]] == [etag(parts[n]) for n in sorted(parts)]
            self._store(repo, asked["oid"], b"".join(parts[n] for n in sorted(parts)))
        elif part:
            repo.parts[what][int(part[0])] = body
            self._answer(200, b"", {"ETag": etag(body)})
            return
        else:
            self._store(repo, what, body)
        self._json({})

    def _store(self, repo: Repo, oid: str, data: bytes) -> None:
        if hashlib.sha256(data).hexdigest() != oid:
            raise Refused(422, message="the object has another hash")
        self.hub.arrived.append(oid)
        repo.large[oid] = bytes([data[0] ^ 1]) + data[1:] if oid in self.hub.spoils else data

    def _commit(self, repo: Repo, name: str, branch: str, lines: list[Mapping[str, Any]]) -> None:
        if branch not in repo.branches:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {branch}")
        header, *operations = lines
        if header["value"].get("parentCommit", repo.branches[branch]) != repo.branches[branch]:
            raise Refused(412, message="A commit has happened since. Please refresh and try again.")
        files = dict(repo.commits[repo.branches[branch]])
        for operation in operations:
            value = operation["value"]
            match operation["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    if value["oid"] not in repo.large:
                        raise Refused(400, message=f"LFS object {value['oid']} is not there")
                    # What the storage holds is what the hub lists, whatever the commit says.
                    data = repo.large[value["oid"]]
                    files[value["path"]] = Pointer(value["oid"], len(data))
                    if value["oid"] in self.hub.spoils:
                        spoilt = hashlib.sha256(data).hexdigest()
                        repo.large[spoilt] = data
                        files[value["path"]] = Pointer(spoilt, len(data))
                case "deletedFile":
                    del files[value["path"]]
        sha = repo.add_commit(branch, files, header["value"]["summary"])
        self._json({"commitUrl": f"{self.hub.url}/{name}/commit/{sha}", "commitOid": sha})

    def _resolve(self, repo: Repo, revision: str, path: str) -> None:
        sha = self._commit_of(repo, revision)
        blob = repo.commits[sha].get(path)
        if blob is None:
            raise Refused(404, "EntryNotFound")
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.oid if isinstance(blob, Pointer) else oid_of(blob)}"'}
        self._answer(200, repo.content(sha)[path], headers)

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def refs(kind: str, named: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit} for name, commit in sorted(named.items())
    ]
