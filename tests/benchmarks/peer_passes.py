"""The least that reading documents, dropping exact duplicates and writing them again takes: methods for `measuring.py`.

Nothing is normalized or checked; text is hashed, the first of each hash kept and written as zstd-3 Parquet.
"""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from measuring import Clock


def polars(clock: Clock, files: list[str]) -> dict[str, Any]:
    import polars as pl

    out = Path(clock.scratch, "documents.parquet")
    pl.scan_parquet(files[:1]).head(20).collect()
    with clock:
        kept = pl.read_parquet(files).with_columns(hash=pl.col("text").hash(1)).unique("hash", keep="first")
        kept.write_parquet(out, compression="zstd", compression_level=3)
    return {"kept": pq.ParquetFile(out).metadata.num_rows}


def duckdb(clock: Clock, files: list[str]) -> dict[str, Any]:
    import duckdb as db

    out = Path(clock.scratch, "documents.parquet")
    db.execute(f"set threads={clock.cores}")
    with clock:
        db.execute(
            f"copy (select any_value(columns(*)) from read_parquet({files!r}) group by md5(text)) to '{out}' "
            f"(format parquet, compression zstd, compression_level 3)"
        )
    return {"kept": pq.ParquetFile(out).metadata.num_rows}
