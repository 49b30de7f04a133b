"""Which checkpoint to resume from, never step 0 when there was one; and which are kept of a finished run.

Permanent and temporary checkpoints lie in one folder, as `step-N`; a resume asks only for the newest.
"""

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import fsspec

from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.store.filesystem import read_files

# Values of a checkpoint that are in memory at once, each as large as a device's share of an array.
_PARALLEL_READS = 8


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory. `step` is the index of the last completed step, as Levanter names it."""

    url: str
    step: int


def checkpoint_to_resume(fs: fsspec.AbstractFileSystem, folder: str, log: Callable[[str], None]) -> Checkpoint | None:
    """The newest readable checkpoint below `folder`; None if none was ever completed.

    A directory without `metadata.json` was being written when its run was killed; it does not count and is removed.

    Raises:
        MarinError: there are complete checkpoints, and none can be read.
    """
    damaged = []
    for url, metadata in sorted(_completed(fs, folder).items(), key=lambda item: _step_in_name(item[0]), reverse=True):
        try:
            step = int(json.loads(metadata)["step"])
            _read_all(url)
            checkpoint = Checkpoint(url, step)
        except (ValueError, KeyError, OSError) as error:
            damaged.append(url)
            log(f"checkpoint {url} is unreadable ({str(error).splitlines()[0][:200]}); trying the one before")
        else:
            for unreadable in damaged:  # or the run could not save there again
                fs.rm(unreadable, recursive=True)
            return checkpoint
    if damaged:
        raise MarinError(
            f"none of the {len(damaged)} checkpoints in {folder} is readable; delete that folder to train from step 0"
        )
    return None


def permanent_steps(plan: TrainPlan) -> list[int]:
    """Steps whose checkpoints stay in the artifact: every `steps_per_checkpoint`, counted as Levanter does by the
    index of the last completed step, and the last."""
    return sorted({*range(plan.steps_per_checkpoint, plan.steps, plan.steps_per_checkpoint), plan.steps - 1})


def keep_only(fs: fsspec.AbstractFileSystem, folder: str, steps: Iterable[int]) -> None:
    """Remove from a run's folder of checkpoints whatever is no checkpoint of these steps."""
    kept = {f"step-{step}" for step in steps}
    for entry in fs.ls(folder, detail=True) if fs.exists(folder) else []:
        if entry["name"].rsplit("/", 1)[-1] not in kept:
            fs.rm(entry["name"], recursive=True)


def _completed(fs: fsspec.AbstractFileSystem, folder: str) -> dict[str, bytes]:
    """URL and `metadata.json` of every completed checkpoint; the others are removed, or a run would save its own into
    their remains."""
    try:
        entries = fs.ls(folder, detail=True)
    except FileNotFoundError:
        return {}
    urls = [f"{folder}/{entry['name'].rsplit('/', 1)[-1]}" for entry in entries if entry["type"] == "directory"]
    metadata = read_files(fs, [f"{url}/metadata.json" for url in urls])
    for url in urls:
        if f"{url}/metadata.json" not in metadata:
            fs.rm(url, recursive=True)
    return {url: metadata[f"{url}/metadata.json"] for url in urls if f"{url}/metadata.json" in metadata}


def _step_in_name(url: str) -> int:
    digits = "".join(c for c in url.rsplit("/", 1)[-1] if c.isdigit())
    return int(digits or -1)


def _read_all(url: str) -> None:
    """Read every value of the checkpoint. Raises ValueError where one is cut short or missing."""
    import tensorstore as ts

    base = f"{url}/" if "://" in url else f"file://{url}/"
    store = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    keys = store.list().result()
    if not keys:
        raise ValueError("it holds no arrays")
    for batch in itertools.batched(keys, _PARALLEL_READS):
        for read in [store.read(key) for key in batch]:
            read.result()
