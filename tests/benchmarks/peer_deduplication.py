"""Other MinHash deduplications: methods for `measuring.py`.

Each writes `links`: Parquet of id, cluster and removed, for every document that shares its cluster with another one.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import Clock
from peer_tokenizers import linked

Pairs = list[tuple[int, int]]
DUPEKIT_BANDS, DUPEKIT_ROWS = 26, 11
DATATROVE_BANDS, DATATROVE_ROWS = 14, 8


def dupekit(clock: Clock, files: list[str], links: str) -> dict[str, Any]:
    """Cleaned text, character 5-grams, 26 bands of 11, and the bands sorted to find what shares one."""
    import dupekit  # pyright: ignore[reportMissingImports]

    step = dupekit.Transformation
    steps = [
        step.CleanText(input_col="text", output_col="clean"),
        step.MinHash(
            input_col="clean", output_col="sketch", num_perms=DUPEKIT_BANDS * DUPEKIT_ROWS, ngram_size=5, seed=42
        ),
        step.MinHashLSH(input_col="sketch", output_col="bands", num_bands=DUPEKIT_BANDS),
        step.SelectColumns(columns=["id", "bands"]),
    ]
    warm = next(pq.ParquetFile(files[0]).iter_batches(20, columns=["id", "text"]))
    dupekit.transform(warm, steps)
    with clock:
        batches = [
            dupekit.transform(batch, steps)
            for file in files
            for batch in pq.ParquetFile(file).iter_batches(2048, columns=["id", "text"])
        ]
        table = pa.Table.from_batches(batches)
        bands, ids = table["bands"].to_pylist(), table["id"].to_pylist()
        whole = [row for row, found in enumerate(bands) if found and len(found) == DUPEKIT_BANDS]
        matrix = np.array([bands[row] for row in whole], np.uint64)
        clusters = components(len(ids), [(whole[a], whole[b]) for a, b in sharing(matrix)])
    return write_links(ids, clusters, links)


def datatrove(clock: Clock, files: list[str], links: str) -> dict[str, Any]:
    """Its four stages with 14 buckets of 8 hashes of word 5-grams."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import minhash
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers.parquet import ParquetWriter
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.text import split_into_words
    from loguru import logger

    logger.remove()
    split_into_words("loads the word splitter", "eng")
    inputs = linked(files, clock.scratch)
    config = minhash.MinhashConfig(
        n_grams=5,
        num_buckets=DATATROVE_BANDS,
        hashes_per_bucket=DATATROVE_ROWS,
        hash_config=HashConfig(precision=64),
    )

    def run(name: str, steps: list[Any], tasks: int) -> None:
        LocalPipelineExecutor(
            pipeline=steps,
            tasks=tasks,
            workers=min(clock.cores, tasks),
            start_method="fork",
            logging_dir=f"{clock.scratch}/{name}",
        ).run()

    def reader() -> Any:
        return ParquetReader(inputs, glob_pattern="*.parquet")

    signed, found, removed = f"{clock.scratch}/signed", f"{clock.scratch}/found", f"{clock.scratch}/removed"
    with clock:
        run("sign", [reader(), minhash.MinhashDedupSignature(signed, config=config)], len(files))
        run("buckets", [minhash.MinhashDedupBuckets(signed, found, config=config)], DATATROVE_BANDS)
        run("cluster", [minhash.MinhashDedupCluster(found, removed, config=config)], 1)
        keep = minhash.MinhashDedupFilter(removed)
        run("filter", [reader(), keep, ParquetWriter(f"{clock.scratch}/kept")], len(files))
    counts = [pq.ParquetFile(file).metadata.num_rows for file in files]
    ids = [key for file in files for key in pq.read_table(file, columns=["id"])["id"].to_pylist()]
    first = np.concatenate([[0], np.cumsum(counts)])
    rows = np.concatenate([np.fromfile(path, "<u4").reshape(-1, 4) for path in Path(found).glob("*.dups")])
    pairs = zip((first[rows[:, 0]] + rows[:, 1]).tolist(), (first[rows[:, 2]] + rows[:, 3]).tolist(), strict=True)
    return write_links(ids, components(len(ids), list(pairs)), links)


def sharing(bands: np.ndarray) -> Pairs:
    """Rows with an equal value in a column: each with the first row that has it."""
    pairs: set[tuple[int, int]] = set()
    for column in bands.T:
        order = np.argsort(column, kind="stable")
        values = column[order]
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        firsts = np.repeat(order[starts], np.diff(np.append(starts, len(values))))
        distinct = firsts != order
        pairs.update(zip(firsts[distinct].tolist(), order[distinct].tolist(), strict=True))
    return sorted(pairs)


def components(count: int, pairs: Pairs) -> list[int]:
    """The lowest member of every row's connected component."""
    parent = list(range(count))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for a, b in pairs:
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return [root(row) for row in range(count)]


def write_links(ids: list[str], clusters: list[int], path: str) -> dict[str, Any]:
    """Of every cluster its first document stays."""
    sizes = np.bincount(clusters, minlength=len(ids))
    linked = [row for row, cluster in enumerate(clusters) if sizes[cluster] > 1]
    names = ([ids[row] for row in linked], [ids[clusters[row]] for row in linked])
    removed = [clusters[row] != row for row in linked]
    schema = pa.schema([("id", pa.string()), ("cluster", pa.string()), ("removed", pa.bool_())])
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in (*names, removed)], schema=schema), path)
    return {"removed": len(ids) - len(set(clusters)), "largest_cluster": int(sizes.max())}
