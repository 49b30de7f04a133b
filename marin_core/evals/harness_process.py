"""The process that runs lm-evaluation-harness: a request per line on standard input, until it closes.

    python -m marin_core.evals.harness_process

What the harness prints goes to standard error, so that standard output holds nothing but replies.
"""

import os
import queue
import sys
import threading
import traceback

from marin_core.errors import disk_full_message
from marin_core.evals.harness_request import HarnessRequest, Reply

_MOST = 500


def main() -> None:
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = HarnessRequest.from_line(requests.get())
        print(f"--- {request.name}", file=sys.stderr, flush=True)
        replies.write(_answer(request).to_line())


def _read(requests: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        requests.put(line)
    # The parent closed the pipe or is gone, and with it whoever wanted the answer.
    os._exit(0)


def _answer(request: HarnessRequest) -> Reply:
    try:
        from marin_core.evals import harness_lm
    except ImportError as error:
        return Reply("infra_failed", f"lm-evaluation-harness is not installed ({error}); run uv sync --extra evals")
    try:
        # Where relative paths of the task's data lead from.
        os.chdir(request.folder or request.output)
        harness_lm.run(request)
    except harness_lm.NeedsHub as error:
        return Reply("needs_hub", _line(f"the data of task {request.name} cannot be fetched: {error}"))
    except harness_lm.Unanswered as error:
        return Reply("infra_failed", _line(str(error)))
    except harness_lm.Refused as error:
        return Reply("failed", _line(str(error)))
    except Exception as error:  # of the harness, and of whatever code a task brings along
        traceback.print_exc()
        full = disk_full_message(error, request.output) if isinstance(error, OSError) else None
        if full or isinstance(error, MemoryError):
            return Reply("infra_failed", full or "out of memory")
        return Reply("failed", _line(f"{type(error).__name__}: {error}"))
    return Reply("succeeded")


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


if __name__ == "__main__":
    main()
