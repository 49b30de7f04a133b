"""SIGTERM to a worker that has not begun its work."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from marin_core.jobs.spec import EXIT_TERMINATED
from tests.conftest import REPOSITORY


def test_sigterm_is_heard_while_the_store_is_still_being_opened(tmp_path: Path) -> None:
    """In a container it would be ignored otherwise, and the pod killed at the end of its grace."""
    with socket.create_server(("127.0.0.1", 0)) as metadata_server:
        at = f"127.0.0.1:{metadata_server.getsockname()[1]}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("GOOGLE_", "STORAGE_EMULATOR"))}
        worker = subprocess.Popen(
            [sys.executable, "-m", "marin_core.worker", "--store", "gs://bucket", "--plan", "plan", "--job", "job"],
            cwd=REPOSITORY,
            env=inherited | {"GCE_METADATA_HOST": at, "GCE_METADATA_IP": at, "HOME": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        metadata_server.settimeout(60)
        # It asks for credentials, and gets no answer.
        with metadata_server.accept()[0]:
            worker.send_signal(signal.SIGTERM)
            _, complaints = worker.communicate(timeout=30)
    assert worker.returncode == EXIT_TERMINATED, complaints
    assert "Traceback" not in complaints
