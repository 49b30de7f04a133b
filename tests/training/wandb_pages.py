"""Pages of runs as wandb keeps them on disk, read without wandb."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

from marin_core.store import ArtifactSpec

SPEC = ArtifactSpec(
    "checkpoints/delphi",
    "train",
    "1",
    {"plan": {"recipe": "delphi", "flops": 3e18, "steps": 3}},
    partition="3e18-d0512",
)
OFFLINE = {"WANDB_PROJECT": "lab", "WANDB_MODE": "offline"}
# Nobody listens at this port. The key has the form of one.
UNREACHABLE = {
    "WANDB_PROJECT": "lab",
    "WANDB_MODE": "online",
    "WANDB_BASE_URL": "http://127.0.0.1:9",
    "WANDB_API_KEY": 40 * "0",
    "WANDB_INIT_TIMEOUT": "2",
}


def records(file: Path) -> Iterator[Record]:
    """What a `.wandb` file holds: protocol buffers in the format of LevelDB's logs, after a header of 7 bytes."""
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + 7 + length > len(data):
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # complete, or the last of several parts
            yield Record.FromString(whole)
            whole = b""


def complete(file: Path) -> list[Record]:
    """All records; wandb's own process may write the last of them after a run has finished."""
    deadline = time.monotonic() + 20
    while not any(record.HasField("exit") for record in records(file)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return list(records(file))


class Page:
    """An attempt's page as wandb kept it on disk."""

    def __init__(self, file: Path):
        read = complete(file)
        (self.run,) = [record.run for record in read if record.HasField("run")]
        self.config = {item.key: json.loads(item.value_json) for item in self.run.config.update}
        rows = [record.history for record in read if record.HasField("history")]
        self.rows = [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in row.item} for row in rows]
        updates = [item for record in read if record.HasField("summary") for item in record.summary.update]
        self.summary = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in updates}
        self.exit_codes = [record.exit.exit_code for record in read if record.HasField("exit")]
        self.is_preempting = any(record.HasField("preempting") for record in read)


def pages(folder: Path) -> list[Page]:
    """Those of an artifact that are not uploaded, in the order in which they were opened."""
    return [Page(file) for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]
