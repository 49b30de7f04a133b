"""Other ways from text in Parquet to token ids and training caches: methods for `measuring.py`.

Facts: `tokens`, and `load_cpu_s`, what loading the vocabulary takes of the CPU seconds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from measuring import Clock, cpu_seconds


def read_texts(files: list[str]) -> list[str]:
    return [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]


def gigatoken(clock: Clock, files: list[str], tokenizer: str) -> dict[str, Any]:
    """The fast tokenizer alone: texts in memory to ids in memory."""
    import awkward as ak
    import gigatoken as gt

    texts = read_texts(files)
    tokens = 0
    gt.Tokenizer(f"{tokenizer}/tokenizer.json").encode_batch(texts[:50])
    with clock:
        before = cpu_seconds()
        encoder = gt.Tokenizer(f"{tokenizer}/tokenizer.json")
        load = cpu_seconds() - before
        for start in range(0, len(texts), 1024):
            ids = encoder.encode_batch(texts[start : start + 1024])
            tokens += int(ak.count(ids))
    return {"tokens": tokens, "load_cpu_s": load}


def datatrove(clock: Clock, files: list[str], tokenizer: str) -> dict[str, Any]:
    """DocumentTokenizer in a local executor, one task a file."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from loguru import logger

    logger.remove()
    inputs = linked(files, clock.scratch)
    load = load_seconds(tokenizer) * len(files)
    eos = json.loads(Path(tokenizer, "tokenizer_config.json").read_text())["eos_token"]
    encode = DocumentTokenizer(
        f"{clock.scratch}/tokens",
        f"{tokenizer}/tokenizer.json",
        eos_token=eos,
        shuffle_documents=False,
        batch_size=1000,
    )
    reader = ParquetReader(inputs, glob_pattern="*.parquet")
    executor = LocalPipelineExecutor(
        [reader, encode], tasks=len(files), workers=clock.cores, start_method="fork", logging_dir=f"{clock.scratch}/log"
    )
    with clock:
        executor.run()
    ids = np.concatenate([np.fromfile(path, "<u4") for path in sorted(Path(clock.scratch, "tokens").glob("*.ds"))])
    return {"tokens": len(ids), "load_cpu_s": load}


def levanter_build(clock: Clock, files: list[str], tokenizer: str) -> dict[str, Any]:
    """Levanter's own cache builder with its local workers."""
    from levanter.data.sharded_datasource import UrlDataSource
    from levanter.data.text.cache import build_lm_dataset_cache
    from levanter.data.text.formats import TextLmDatasetFormat
    from levanter.tokenizers import load_tokenizer

    with clock:
        before = cpu_seconds()
        loaded = load_tokenizer(tokenizer)
        load = cpu_seconds() - before
        cache = build_lm_dataset_cache(f"{clock.scratch}/cache", UrlDataSource(files), TextLmDatasetFormat(), loaded)
        tokens = cache.flat_field_length("input_ids")
    return {"tokens": tokens, "load_cpu_s": load}


def levanter_batches(clock: Clock, files: list[str], tokenizer: str) -> dict[str, Any]:
    """Levanter's batch tokenizer and cache writer in this process, without workers."""
    from levanter.data.text.formats import TextLmDatasetFormat, preprocessor_for_format
    from levanter.store.cache import TreeCache, write_levanter_cache
    from levanter.tokenizers import load_tokenizer

    def rows(encode: Any) -> Iterator[Any]:
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(128, columns=["text"]):
                yield from encode(batch.to_pylist())

    with clock:
        before = cpu_seconds()
        loaded = load_tokenizer(tokenizer)
        load = cpu_seconds() - before
        encode = preprocessor_for_format(TextLmDatasetFormat(), loaded, enforce_bos=True, enforce_eos=True)
        write_levanter_cache(rows(encode), f"{clock.scratch}/cache", metadata=encode.metadata or {})
    cache = TreeCache.load(f"{clock.scratch}/cache", {"input_ids": np.zeros((0,), np.int32)})
    return {"tokens": cache.flat_field_length("input_ids"), "load_cpu_s": load}


def load_seconds(tokenizer: str) -> float:
    """CPU seconds that `tokenizers` takes to load the vocabulary."""
    from tokenizers import Tokenizer

    before = cpu_seconds()
    Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    return cpu_seconds() - before


def linked(files: list[str], scratch: str) -> str:
    """A folder that holds nothing but links to the files."""
    folder = Path(scratch, "inputs")
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        (folder / f"{number:03d}.parquet").symlink_to(file)
    return str(folder)
