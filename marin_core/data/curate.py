"""Curation: raw documents to `id, text, source, licence, …` Parquet, normalized and free of exact duplicates."""

from collections.abc import Callable
from typing import Any

import polars as pl
import xxhash

from marin_core.data.installed import read_installed
from marin_core.data.sources import InstalledSource
from marin_core.errors import MarinError
from marin_core.store import Artifact, Writer

# Runs of blanks beyond this length carry nothing and can exhaust memory in tokenizers.
MAX_WHITESPACE_RUN = 128
_PROVENANCE_COLUMNS = ("package", "version", "path")


def write_raw(source: InstalledSource, writer: Writer, log: Callable[[str], None]) -> dict[str, Any]:
    """Read a source as it is into `documents.parquet` (text, package, version, path, licence).

    Raises:
        MarinError: the source has no documents.
    """
    documents = [vars(document) for document in read_installed(source)]
    if not documents:
        raise MarinError(
            f"source {source.name!r} has no documents: none of {', '.join(source.packages)} has text of kind "
            f"{source.kind!r} within {source.max_bytes:,} bytes; change the source's packages or max_bytes"
        )
    frame = pl.DataFrame(documents)
    with writer.open("documents.parquet") as file:
        frame.write_parquet(file, compression="zstd", compression_level=3)
    log(f"raw/{source.name}: {len(frame):,} documents")
    return {"documents": len(frame), "bytes": _bytes(frame), "licences": sorted(set(frame["licence"]))}


def curate(source: str, raw: Artifact, writer: Writer, log: Callable[[str], None]) -> dict[str, Any]:
    """Normalize, drop empty documents and exact duplicates, sort by id; `documents.parquet`, counts in the summary.

    Columns: `id` (xxh3-128 of the text, 32 hex digits), `text`, `source`, `licence`, then where it came from.
    Of equal documents the one with the first package and path is kept.

    Raises:
        MarinError: the raw file is damaged, or nothing is left.
    """
    frame = read_documents(raw)
    normalized = frame.with_columns(text=normalized_text(pl.col("text")))
    kept = normalized.filter(pl.col("text") != "")
    kept = kept.with_columns(
        id=pl.col("text").map_elements(lambda text: xxhash.xxh3_128_hexdigest(text.encode()), return_dtype=pl.String),
        source=pl.lit(source),
    )
    unique = kept.sort(*_PROVENANCE_COLUMNS).unique("id", keep="first", maintain_order=True).sort("id")
    if unique.is_empty():
        raise MarinError(f"source {source!r} has no documents left after curation ({len(frame)} came in)")
    columns = ["id", "text", "source", "licence", *_PROVENANCE_COLUMNS]
    with writer.open("documents.parquet") as file:
        unique.select(columns).write_parquet(file, compression="zstd", compression_level=3)
    summary = {
        "documents_in": len(frame),
        "empty": len(frame) - len(kept),
        "exact_duplicates": len(kept) - len(unique),
        "documents": len(unique),
        "bytes": _bytes(unique),
        "licences": sorted(set(unique["licence"])),
    }
    log(f"curated/{source}: {summary['documents']:,} of {len(frame):,} documents kept")
    return summary


def normalized_text(text: pl.Expr) -> pl.Expr:
    """Line ends unified, outer whitespace stripped, every whitespace run cut to its first 128 characters."""
    unified = text.str.replace_all(r"\r+\n", "\n").str.strip_chars()
    return unified.str.replace_all(rf"(\s{{{MAX_WHITESPACE_RUN}}})\s+", "$1")


def read_documents(artifact: Artifact) -> pl.DataFrame:
    """`documents.parquet` of an artifact.

    Raises:
        StoreError: the file is missing or damaged.
    """
    return pl.read_parquet(artifact.read("documents.parquet"))


def _bytes(frame: pl.DataFrame) -> int:
    return int(frame["text"].str.len_bytes().sum())
