"""A small web server on this machine that speaks the part of W&B's protocol that a run and `wandb sync` use: runs are
made and resumed by GraphQL, and told line by line through their file stream. It fails on demand.

An id that was deleted is refused with status 409, as W&B does (github.com/mozilla/translations, issue 875).
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = "team"
KEY = 40 * "0"


@dataclass
class ServedRun:
    """What the server has of a run."""

    project: str
    settings: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) in the order in which the rows came."""
        return [(row["step"], row[name]) for row in self.history if name in row]


@dataclass
class WandbServer:
    runs: dict[str, ServedRun] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    # While it is clear, nobody gets an answer.
    answers: threading.Event = field(default_factory=threading.Event)
    accepts_keys: bool = True
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """For a client."""
        return {
            "WANDB_MODE": "online",
            "WANDB_PROJECT": "lab",
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": KEY,
        }

    def answer(self, operation: str, variables: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        match operation:
            case "UpsertBucket" if variables["name"] in self.deleted:
                message = f"run lab/{variables['name']} was previously created and deleted; try a new run name"
                return 409, {"data": {"upsertBucket": None}, "errors": [{"message": message}]}
            case "UpsertBucket":
                return 200, {"data": {"upsertBucket": self._upsert(variables)}}
            case "RunResumeStatus":
                return 200, {"data": {"model": self._resume_status(variables["name"])}}
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in variables["files"]]
                return 200, {"data": {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}}
            case _:
                return 200, {"data": {}}

    def stream(self, name: str, told: dict[str, Any]) -> None:
        run, files = self.runs[name], told.get("files") or {}
        if history := files.get("wandb-history.jsonl"):
            at, lines = history["offset"], [json.loads(line) for line in history["content"]]
            run.history[at : at + len(lines)] = lines
        if summary := files.get("wandb-summary.json"):
            run.summary = json.loads(summary["content"][-1])
        if told.get("complete"):
            run.exit_codes.append(told["exitcode"])

    def _upsert(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["name"]
        inserted = name not in self.runs
        run = self.runs.setdefault(name, ServedRun(variables["project"], {}))
        run.settings |= {key: value for key, value in variables.items() if value is not None}
        return {"bucket": self._bucket(name, run), "inserted": inserted}

    def _resume_status(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        if run is None:
            return None
        tail = json.dumps([json.dumps(row) for row in run.history[-1:]])
        bucket = {
            **self._bucket(name, run),
            "summaryMetrics": json.dumps(run.summary),
            "historyTail": tail,
            "eventsTail": "[]",
            "logLineCount": 0,
            "eventsLineCount": 0,
            "tags": run.settings.get("tags", []),
            "notes": "",
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {"id": "project", "name": run.project, "entity": {"id": "entity", "name": ENTITY}, "bucket": bucket}

    def _bucket(self, name: str, run: ServedRun) -> dict[str, Any]:
        project = {"id": "project", "name": run.project, "entity": {"id": "entity", "name": ENTITY}}
        return {
            "id": f"id-{name}",
            "name": name,
            "displayName": run.settings.get("displayName"),
            "description": None,
            "config": run.settings.get("config"),
            "sweepName": None,
            "historyLineCount": len(run.history),
            "project": project,
        }


@contextlib.contextmanager
def wandb_server() -> Iterator[WandbServer]:
    state = WandbServer()
    state.answers.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self._body()
            if not state.accepts_keys:
                self._reply(401, {"errors": [{"message": "user is not logged in"}]})
            elif self.path == "/graphql":
                asked = json.loads(body)
                operation = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
                self._reply(*state.answer(operation[1] if operation else "", asked.get("variables") or {}))
            elif self.path.endswith("/file_stream"):
                state.stream(self.path.split("/")[-2], json.loads(body))
                self._reply(200, {})
            else:
                self._reply(404, {})  # wandb's telemetry

        def do_PUT(self) -> None:
            self._body()
            self._reply(200, {})

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.answers.wait()
            return body

        def _reply(self, status: int, value: dict[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that was killed

    server = Server(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.answers.set()
        server.shutdown()
        server.server_close()
