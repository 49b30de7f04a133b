"""Rejects: what of a source could not be read, record by record, with where it was and why. What readers find wrong is
in `readers/`; what share of rejects a source may have is its declaration's."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

# Kinds, and what each says of a record (or, the first three and `schema`, of the rest of a file).
TRUNCATED, DAMAGED, TRAILING_GARBAGE = "truncated", "damaged", "trailing_garbage"
SCHEMA_KIND, INVALID_UTF8, BROKEN_JSON = "schema", "invalid_utf8", "broken_json"
NO_TEXT, TEXT_NOT_STRING, OVERSIZED, BAD_MESSAGES = "no_text", "text_not_string", "oversized", "bad_messages"

SAMPLE_CHARACTERS = 200
# `position`: line (jsonl, from 1), row (Parquet), record (WARC), 0 for a whole file. `sample`: how the record begins.
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("sample", pa.string()),
    ]
)
_BUFFERED = 1_000


class Rejects:
    """Rejects of some raw files, streamed to an Arrow IPC file that is made with the first of them.

    `open_file` opens it for writing. A context manager: the file is whole once left.
    """

    def __init__(self, open_file: Callable[[], IO[bytes]]):
        self.counts: Counter[str] = Counter()
        self.unread_bytes = 0
        self._open, self._rows = open_file, []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> "Rejects":
        return self

    def __exit__(self, *exception: object) -> None:
        self._flush()
        if self._writer and self._file:
            self._writer.close()
            self._file.close()

    def add(
        self, file: str, position: int, kind: str, reason: str, record: bytes | str = "", unread_bytes: int = 0
    ) -> None:
        """`unread_bytes`: how much of the file is lost with this reject, where it is more than a record."""
        head = record[: 4 * SAMPLE_CHARACTERS] if isinstance(record, bytes) else record.encode(errors="replace")
        sample = head.decode(errors="replace")[:SAMPLE_CHARACTERS]
        self.counts[kind] += 1
        self.unread_bytes += unread_bytes
        self._rows.append((file, position, kind, " ".join(reason.split()), sample))
        if len(self._rows) >= _BUFFERED:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._file = self._open()
            self._writer = pa.ipc.new_file(self._file, SCHEMA)
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*self._rows, strict=True), SCHEMA, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        self._rows = []


class FileRejects:
    """The rejects of one file, for its reader."""

    def __init__(self, rejects: Rejects, file: str, size: int):
        self._rejects, self._file, self.size = rejects, file, size
        self.count = 0

    def record(self, position: int, kind: str, reason: str, record: bytes | str = "") -> None:
        self.count += 1
        self._rejects.add(self._file, position, kind, reason, record)

    def rest(self, position: int, kind: str, reason: str, unread_bytes: int, record: bytes | str = "") -> None:
        """`unread_bytes` of the file, from `position` on, cannot be read: one reject."""
        self.count += 1
        self._rejects.add(self._file, position, kind, reason, record, min(unread_bytes, self.size))


def write_rejects(spills: Iterable[IO[bytes]], file: IO[bytes]) -> None:
    """Gather what `Rejects` streamed into one Parquet file, a spill at a time."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd", compression_level=3) as writer:
        for spill in spills:
            with spill:
                reader = pa.ipc.open_file(spill)
                for index in range(reader.num_record_batches):
                    writer.write_batch(reader.get_batch(index))
