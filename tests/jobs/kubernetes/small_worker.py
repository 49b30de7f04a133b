"""A worker that does in a real pod what its artifact's config says: one list of acts for each attempt.

An act `1:exit` is for process 1 of a gang alone.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from marin_core.jobs.messages import MessageWriter
from marin_core.jobs.spec import EXIT_REFUSED
from marin_core.store import Store


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--store", "--plan", "--job"):
        parser.add_argument(option)
    arguments, _ = parser.parse_known_args()
    store = Store(arguments.store)
    spec = store.load_plan(arguments.plan)
    attempts = Path(str(spec.config["folder"]))
    rank = int(os.environ.get("MARIN_SLICE", 0)) + int(os.environ.get("JOB_COMPLETION_INDEX", 0))
    number = len(list(attempts.glob(f"{rank}-*")))
    (attempts / f"{rank}-{os.environ['MARIN_POD']}").touch()
    messages = MessageWriter(store.objects, arguments.job, os.environ["MARIN_POD"])
    acts = spec.config["attempts"]
    for named, value in acts[min(number, len(acts) - 1)]:
        whose, _, act = named.rpartition(":")
        if whose not in ("", str(rank)):
            continue
        if act == "print":
            print("\n".join(f"line {n}" for n in range(value)), flush=True)
        elif act == "sleep":
            time.sleep(value)
        elif act == "log":
            messages.log(value)
        elif act == "progress":
            messages.progress({"step": value})
        elif act == "commit":
            with store.writer(spec, resumable=False) as writer:
                if not writer.committed:
                    writer.commit({"value": value})
        elif act == "refuse":
            messages.failed(value)
            messages.close()
            sys.exit(EXIT_REFUSED)
        elif act == "exit":
            messages.close()
            sys.exit(value)
    messages.close()


if __name__ == "__main__":
    main()
