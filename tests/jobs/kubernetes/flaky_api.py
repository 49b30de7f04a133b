"""An API server that misbehaves on purpose, over real connections: what a healthy one cannot be made to do."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from marin_core.jobs.kubernetes.place import KubernetesPlace

# In an answer: the connection breaks here, in the middle of a chunk.
BREAK = b"<break>"

Answer = tuple[int, Iterable[bytes]]


@contextmanager
def served(
    answer: Callable[[str, dict[str, str]], Answer], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesPlace]:
    """A place whose API server answers GET requests with `answer(path, query)`: a status, and chunks of the body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            status, chunks = answer(split.path, dict(parse_qsl(split.query)))
            self.send_response(status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in chunks:
                if chunk == BREAK:
                    self.wfile.write(b"ffff\r\ncut sh")
                    self.close_connection = True
                    return
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(folder, server.server_port)))
    yield KubernetesPlace(namespace="lab", image="x", region="us-east5", context="flaky")
    server.shutdown()
    server.server_close()


def _kubeconfig(folder: Path, port: int) -> Path:
    file = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "flaky", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "flaky", "context": {"cluster": "flaky", "user": "nobody"}}],
        "current-context": "flaky",
    }
    file.write_text(json.dumps(config))
    return file
