"""What pages read of artifacts' files: loss curves, figures, tables, a few documents. A file that is gone or damaged
costs a page its picture, never the site."""

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from marin_core.records.site.charts import Point
from marin_core.store import ArtifactRecord, Store, StoreError

METRICS = "metrics.parquet"
_PARALLEL_READS = 16
_BATCH = 256
_SAMPLES = 3
_SAMPLE_CHARACTERS = 700


@dataclass(frozen=True)
class Sample:
    """The beginning of a document, and what its record says besides."""

    text: str
    cut: bool
    about: Mapping[str, str]


def loss_curve(store: Store, record: ArtifactRecord) -> list[Point]:
    """(step, loss) of a training run; empty if it has none or it cannot be read."""
    if not any(file.path == METRICS for file in record.files):
        return []
    import polars as pl

    try:
        data = store.opened(record).read(METRICS)
        rows = pl.read_parquet(io.BytesIO(data), columns=["step", "loss"]).drop_nulls()
    except (StoreError, OSError, pl.exceptions.PolarsError):
        return []
    return [(float(step), float(loss)) for step, loss in rows.iter_rows()]


def with_curves(store: Store, records: Iterable[ArtifactRecord]) -> Iterator[tuple[ArtifactRecord, list[Point]]]:
    """Every artifact with its loss curve; those of a batch are read at the same time."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for batch in itertools.batched(records, _BATCH):
            yield from zip(batch, pool.map(lambda record: loss_curve(store, record), batch), strict=True)


def file_bytes(store: Store, record: ArtifactRecord, path: str) -> bytes | None:
    """A small file; None if it cannot be read."""
    try:
        return store.opened(record).read(path)
    except (StoreError, OSError):
        return None


def table_as_csv(store: Store, record: ArtifactRecord, path: str) -> bytes | None:
    """A Parquet table as CSV, columns of lists and structures left out; None if it cannot be read."""
    import polars as pl

    data = file_bytes(store, record, path)
    if data is None:
        return None
    try:
        table = pl.read_parquet(io.BytesIO(data))
        flat = [name for name, kind in table.schema.items() if not kind.is_nested()]
        return table.select(flat).write_csv().encode()
    except pl.exceptions.PolarsError:
        return None


def samples(store: Store, record: ArtifactRecord) -> list[Sample]:
    """The first few documents of an artifact that holds some. They are sorted by the hash of their text, so the first
    are as good as any."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = next((file.path for file in record.files if file.path.startswith("documents/")), None)
    if path is None:
        return []
    try:
        with store.opened(record).open(path) as file:
            table = pq.ParquetFile(file)
            rows = next(table.iter_batches(batch_size=_SAMPLES), None)
            return [_sample(row) for row in rows.to_pylist()] if rows else []
    except (StoreError, OSError, pa.ArrowException):
        return []


def _sample(row: Mapping[str, object]) -> Sample:
    text = str(row.get("text") or "")
    about = {name: str(value) for name, value in row.items() if name != "text" and value is not None}
    return Sample(text[:_SAMPLE_CHARACTERS], len(text) > _SAMPLE_CHARACTERS, about)
