"""The file in which wandb keeps a run's page: whether it is complete.

It is a log in the format of LevelDB (github.com/google/leveldb, doc/log_format.md) after a header of 7 bytes: blocks of
32 KiB, in them chunks of a checksum (4 bytes), a length (2) and a kind (1). A record is one chunk, or several of the
kinds first, middle, last. wandb's records are protocol buffers, the last one says with which code the run ended.
"""

import struct
import time
from pathlib import Path

_BLOCK = 32 << 10
_HEADER = 7
_COMPLETE, _FIRST, _LAST = 1, 2, 4


def await_complete(file: Path, seconds: float) -> None:
    """Wait until a finished run is in its file, which wandb's own process writes.

    Raises:
        OSError: it is still not after that time, as on a full disk.
    """
    until = time.monotonic() + seconds
    while not _has_ended(file):
        if time.monotonic() > until:
            raise OSError(f"{file} ends in the middle of the run; is its disk full?")
        time.sleep(0.01)


def _has_ended(file: Path) -> bool:
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    last = _last_record(file)
    return last is not None and Record.FromString(last).HasField("exit")


def _last_record(file: Path) -> bytes | None:
    """The last whole record, of those that begin in the last two blocks."""
    with open(file, "rb") as opened:
        start = max(0, file.stat().st_size // _BLOCK - 1) * _BLOCK
        opened.seek(start)
        data = opened.read()
    at = _HEADER if start == 0 else 0
    last: bytes | None = None
    parts: bytes | None = None
    while at + _HEADER <= len(data):
        room = _BLOCK - at % _BLOCK
        if room < _HEADER:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        chunk = data[at + _HEADER : at + _HEADER + length]
        if len(chunk) < length:
            return None
        at += _HEADER + length
        if kind in (_COMPLETE, _FIRST):
            parts = b""
        if parts is not None:
            parts += chunk
            if kind in (_COMPLETE, _LAST):
                last, parts = parts, None
    return last
