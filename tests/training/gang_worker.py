"""The worker, with a compilation cache for every process of a gang.

JAX lets only process 0 write to its cache, and on CPUs nobody else reads what that one wrote: all the others would
compile everything at each start. With KILLED_AFTER it is killed as `killed_worker` is.
"""

import os
from pathlib import Path
from types import SimpleNamespace

from jax._src import compiler

from marin_core.worker import main
from tests.training.killed_worker import die_after

if __name__ == "__main__":
    # What it asks before it writes.
    compiler.distributed = SimpleNamespace(  # pyright: ignore[reportPrivateImportUsage]
        global_state=SimpleNamespace(process_id=0, client=None)
    )
    if "KILLED_AFTER" in os.environ:
        die_after(Path(os.environ["KILLED_AFTER"]))
    main()
