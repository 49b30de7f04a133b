"""One part of one split: its rows in a cache, and the index that says which document each row is."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from marin_core.data.tokens.cache import CacheWriter, Part
from marin_core.data.tokens.encoder import Rows
from marin_core.store import Workspace

_SCHEMA = pa.schema([("id", pa.string()), ("row", pa.int64()), ("tokens", pa.int64()), ("start", pa.int64())])


def held_out(ids: pl.Series, share: float) -> pl.Series:
    """Whether documents belong to the validation split: those whose id, a uniform hash of the text, is in the lowest
    `share`."""
    return ids.str.head(8).str.to_integer(base=16, dtype=pl.UInt64) < int(share * 2**32)


# What stands between a document's text and its EOS, by framing.
SUFFIX: Mapping[str, str] = {"document": "", "levanter": " "}


class SplitWriter:
    """Writes `<split>/<part>/` and `index/<split>/<part>.parquet` for a part of the curated documents."""

    def __init__(self, workspace: Workspace, split: str, curated_part: str, fields: Sequence[str]):
        self._curated_part, self._name = curated_part, PurePosixPath(curated_part).stem
        self._workspace, self._split = workspace, split
        self._rows = CacheWriter(workspace, f"{split}/{self._name}", fields)
        self._index: list[pa.Table] = []
        self.documents = 0

    def append(self, documents: pl.DataFrame, rows: Rows) -> None:
        """Append documents (`id`, and `row`: which of the curated part's they are) and their encoded rows."""
        starts = self._rows.append(rows.lengths, rows.values)
        columns = [documents["id"].to_arrow().cast(pa.string()), documents["row"].to_arrow(), rows.lengths, starts]
        self._index.append(pa.table([pa.array(column) for column in columns], schema=_SCHEMA))
        self.documents += len(documents)

    def close(self, metadata: Mapping[str, Any]) -> Part:
        index = pa.concat_tables([_SCHEMA.empty_table(), *self._index])
        part = pa.array([self._curated_part] * 1, pa.string())
        places = pa.DictionaryArray.from_arrays(pa.array([0] * len(index), pa.int32()), part)
        index = index.add_column(1, "part", places)
        with self._workspace.open(f"index/{self._split}/{self._name}.parquet") as file:
            pq.write_table(index, file, compression="zstd", compression_level=3)
        return self._rows.close(metadata)
