"""The worker, with a compilation cache for every process of a gang.

JAX lets only process 0 write to its cache, and on CPUs nobody else reads what that one wrote: all the others would
compile everything at each start.
"""

from types import SimpleNamespace

from jax._src import compiler

from marin_core.worker import main

if __name__ == "__main__":
    # What it asks before it writes.
    compiler.distributed = SimpleNamespace(  # pyright: ignore[reportPrivateImportUsage]
        global_state=SimpleNamespace(process_id=0, client=None)
    )
    main()
