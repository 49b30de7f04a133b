"""Token shards in the format of Levanter's cache, written and read without Levanter or jax.

A cache is a folder of parts and a ledger. Each part has, for each field, two zarr arrays: `data`, the values of all
rows one after another, and `offsets`, where `offsets[0]` is the number of rows and `offsets[i]` the end of row i. What
the values are is in `shards.py`.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import fsspec
import numpy as np

from marin_core.errors import MarinError
from marin_core.store import Workspace

LEDGER = "shard_ledger.json"
# Values of a compressed chunk, the unit of reading: of data as Levanter has it, of offsets fewer, since rows are few.
CHUNK, OFFSETS_CHUNK = 1 << 18, 1 << 14
# Values of a file: 128 MiB of ids are held until they are written.
FILE_VALUES = 1 << 25
_METADATA = "zarr.json"
# Neighbouring rows are in one chunk.
_READ_CACHE_BYTES = 8 << 20
# Levanter opens an array with whatever shape it has, and reads no further than the offsets say.
_SHAPE = 1 << 54


@dataclass(frozen=True)
class Part:
    """What a part holds: rows, and the values of each field."""

    rows: int
    values: Mapping[str, int]


class CacheWriter:
    """Writes the rows of one part: batches of one flat array per field, all of them with the same row lengths."""

    def __init__(self, workspace: Workspace, folder: str, fields: Sequence[str], file_values: int = FILE_VALUES):
        self._workspace, self._folder = workspace, folder
        self._data = {
            field: _ArrayWriter(workspace, f"{folder}/{field}/data", np.int32, file_values, CHUNK) for field in fields
        }
        self._ends: list[np.ndarray] = []
        self._end = 0

    def append(self, lengths: np.ndarray, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Append rows of the given lengths; returns where each begins in the part, in values, (rows,) int64."""
        ends = np.cumsum(lengths, dtype=np.int64) + self._end
        for field, writer in self._data.items():
            writer.append(values[field])
        if len(ends):
            self._ends.append(ends)
            self._end = int(ends[-1])
        return ends - lengths

    def close(self, metadata: Mapping[str, Any]) -> Part:
        """Write what is held back, the offsets and the part's own ledger."""
        rows = sum(len(ends) for ends in self._ends)
        offsets = np.concatenate([np.array([rows], np.int64), *self._ends])
        for field, writer in self._data.items():
            writer.close()
            folder = f"{self._folder}/{field}/offsets"
            array = _ArrayWriter(self._workspace, folder, np.int64, FILE_VALUES, OFFSETS_CHUNK)
            array.append(offsets)
            array.close()
        part = Part(rows, dict.fromkeys(self._data, self._end))
        ledger = _ledger({"": part}, metadata, "consolidated")
        self._workspace.write_json(f"{self._folder}/{LEDGER}", ledger)
        return part


class CacheReader:
    """A part as it lies on the disk, read through nothing but its own files.

    Raises:
        MarinError: a file is missing or unreadable, or holds less than the offsets say.
    """

    def __init__(self, fs: fsspec.AbstractFileSystem, url: str, fields: Sequence[str]):
        self._url = url
        self._data = {field: _read_array(fs, f"{url}/{field}/data") for field in fields}
        self._ends = {field: self._read_ends(fs, field) for field in fields}
        if len({len(ends) for ends in self._ends.values()}) != 1:
            raise MarinError(f"{url}: {', '.join(fields)} do not have equally many rows; build the shards again")

    @property
    def part(self) -> Part:
        return Part(len(next(iter(self._ends.values()))) - 1, {field: int(e[-1]) for field, e in self._ends.items()})

    def row(self, field: str, row: int) -> np.ndarray:
        """The values of a row, (length,) int32."""
        begin, end = self._ends[field][row : row + 2]
        return _values(self._url, self._data[field][0][begin:end])

    def _read_ends(self, fs: fsspec.AbstractFileSystem, field: str) -> np.ndarray:
        """0 and the end of every row."""
        offsets, held = _read_array(fs, f"{self._url}/{field}/offsets")
        rows = int(_values(self._url, offsets[0])) if held else -1
        ends = _values(self._url, offsets[: rows + 1]) if 0 <= rows < held else np.array([-1])
        ends[0] = min(ends[0], 0)
        _, values = self._data[field]
        if not 0 <= ends[-1] <= values:
            raise MarinError(
                f"{self._url}: {field} should have {rows:,} rows and {ends[-1]:,} values, its files hold {held:,} "
                f"offsets and {values:,} values; check the disk and build the shards again"
            )
        return ends


def write_ledger(workspace: Workspace, folder: str, parts: Mapping[str, Part], metadata: Mapping[str, Any]) -> None:
    """The ledger that makes a cache of a folder's parts, in their order: its sharded layout."""
    workspace.write_json(f"{folder}/{LEDGER}", _ledger(parts, metadata, "sharded"))


def _ledger(parts: Mapping[str, Part], metadata: Mapping[str, Any], layout: str) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for part in parts.values():
        for field, values in part.values.items():
            counts[field] = counts.get(field, 0) + values
    return {
        "total_num_rows": sum(part.rows for part in parts.values()),
        "shard_rows": {name: part.rows for name, part in parts.items()},
        "is_finished": True,
        "finished_shards": list(parts),
        "field_counts": counts,
        "field_counts_by_shard": {name: dict(part.values) for name, part in parts.items()}
        if layout == "sharded"
        else {},
        "layout": layout,
        "metadata": {"preprocessor_metadata": dict(metadata)},
    }


class _ArrayWriter:
    """One zarr array: values are held until a file is full, encoded in memory, and written through the workspace."""

    def __init__(self, workspace: Workspace, folder: str, dtype: type[np.integer], file_values: int, chunk: int):
        self._workspace, self._folder = workspace, folder
        self._memory = _Memory()
        self._array = self._memory.create(np.dtype(dtype), file_values, chunk)
        self._held = _Held.take(dtype, file_values)
        self._values = self._files = 0

    def append(self, values: np.ndarray) -> None:
        held = self._held.values
        while len(values):
            taken = values[: len(held) - self._values]
            held[self._values : self._values + len(taken)] = taken
            self._values += len(taken)
            values = values[len(taken) :]
            if self._values == len(held):
                self._write_file()

    def close(self) -> None:
        if self._values:
            self._write_file()
        self._write(_METADATA)
        self._held.give_back()

    def _write_file(self) -> None:
        start = self._files * len(self._held.values)
        selection, values = self._array[start : start + self._values], self._held.values[: self._values]
        # It is encoded, and gone from the array's own memory, before the values change.
        selection.write(values, can_reference_source_data_indefinitely=True).result()
        self._write(f"c/{self._files}")
        self._values, self._files = 0, self._files + 1

    def _write(self, path: str) -> None:
        with self._workspace.open(f"{self._folder}/{path}") as file:
            file.write(self._memory.take(path))


class _Held:
    """Memory for values on the way, kept for the next array: to touch new pages costs more than to compress them."""

    _free: ClassVar[list["_Held"]] = []

    def __init__(self, values: np.ndarray):
        self.values = values

    @classmethod
    def take(cls, dtype: type[np.integer], values: int) -> "_Held":
        for number, held in enumerate(cls._free):
            if held.values.dtype == dtype and len(held.values) == values:
                return cls._free.pop(number)
        # Pages that no value reaches cost nothing.
        return cls(np.empty(values, dtype))

    def give_back(self) -> None:
        self._free.append(self)


class _Memory:
    """The files of one array in memory: TensorStore is the codec, the store's own file system the door."""

    def __init__(self, cache_bytes: int = 0) -> None:
        import tensorstore

        self._context = tensorstore.Context({"cache_pool": {"total_bytes_limit": cache_bytes}})
        self._files = tensorstore.KvStore.open({"driver": "memory"}, context=self._context).result()

    def create(self, dtype: np.dtype, file_values: int, chunk: int) -> Any:
        compressor = {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 1}}
        chunks = {"chunk_shape": [math.gcd(chunk, file_values)], "codecs": [compressor]}
        metadata = {
            "shape": [_SHAPE],
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [file_values]}},
            "codecs": [{"name": "sharding_indexed", "configuration": chunks}],
        }
        # A chunk of nothing but zeros is data too: a file that is missing is then always damage.
        return self._open({"metadata": metadata, "store_data_equal_to_fill_value": True, "create": True})

    def open(self) -> Any:
        return self._open({"open": True})

    def put(self, path: str, data: bytes) -> None:
        self._files.write(path, data).result()

    def take(self, path: str) -> bytes:
        """The bytes of a file, which is gone from memory then, but for the metadata, which the array still needs."""
        data = self._files.read(path).result().value
        if path != _METADATA:
            self._files.write(path, None).result()
        return data

    def _open(self, spec: Mapping[str, Any]) -> Any:
        import tensorstore

        array = {"driver": "zarr3", "kvstore": {"driver": "memory"}, **spec}
        return tensorstore.open(array, context=self._context).result()


def _values(url: str, selection: Any) -> np.ndarray:
    try:
        return selection.read().result()
    except ValueError as error:
        cause = str(error).splitlines()[0]
        raise MarinError(f"{url} cannot be read back: {cause}; check the disk and build the shards again") from None


def _read_array(fs: fsspec.AbstractFileSystem, url: str) -> tuple[Any, int]:
    """A zarr array, its files read whole, and how many values they can hold.

    Raises:
        MarinError: there is no such array, or it cannot be read.
    """
    memory = _Memory(_READ_CACHE_BYTES)
    try:
        memory.put(_METADATA, _bytes(fs, f"{url}/{_METADATA}"))
        files = 0
        with contextlib.suppress(FileNotFoundError):
            while True:
                memory.put(f"c/{files}", _bytes(fs, f"{url}/c/{files}"))
                files += 1
        array = memory.open()
    except (OSError, ValueError) as error:
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise MarinError(f"{url} cannot be read back: {cause}; check the disk and build the shards again") from None
    return array, files * array.chunk_layout.write_chunk.shape[0]


def _bytes(fs: fsspec.AbstractFileSystem, url: str) -> bytes:
    return cast("bytes", fs.cat_file(url))
