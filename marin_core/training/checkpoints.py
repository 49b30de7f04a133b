"""Which checkpoint to resume from. Never falls back to step 0 when there was a checkpoint."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import fsspec

from marin_core.errors import MarinError


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
    for url in sorted(_completed(fs, folder), key=_step_in_name, reverse=True):
        try:
            metadata = json.loads(fs.cat_file(f"{url}/metadata.json"))
            _read_all(url)
            checkpoint = Checkpoint(url, int(metadata["step"]))
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


def _completed(fs: fsspec.AbstractFileSystem, folder: str) -> list[str]:
    """URLs of the completed checkpoints; the others are removed, or a run would save its own into their remains."""
    if not fs.exists(folder):
        return []
    scheme = f"{folder.partition('://')[0]}://" if "://" in folder else ""
    completed = []
    for name in [entry["name"] for entry in fs.ls(folder, detail=True) if entry["type"] == "directory"]:
        url = name if "://" in name else f"{scheme}{name}"
        if fs.exists(f"{url}/metadata.json"):
            completed.append(url)
        else:
            fs.rm(url, recursive=True)
    return completed


def _step_in_name(url: str) -> int:
    digits = "".join(c for c in url.rsplit("/", 1)[-1] if c.isdigit())
    return int(digits or -1)


def _read_all(url: str) -> None:
    """Read every value of the checkpoint. Raises ValueError where one is cut short or missing."""
    import tensorstore as ts

    base = url if "://" in url else f"file://{url}/"
    store = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    keys = store.list().result()
    if not keys:
        raise ValueError("it holds no arrays")
    for key in keys:
        store.read(key).result()
