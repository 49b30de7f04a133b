"""Tokenized shards: curated documents as the token cache that Levanter's loader reads, one per split."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from marin_core.data.curate import read_documents
from marin_core.data.tokenizer import load_tokenizer, special_ids
from marin_core.errors import MarinError
from marin_core.store import Artifact, Writer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BATCH_DOCUMENTS = 512


def tokenize(
    source: str,
    curated: Artifact,
    tokenizer: Artifact,
    validation_share: float,
    writer: Writer,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Write `train/` and `validation/`, each a Levanter cache of `input_ids`, BOS + document + EOS per row.

    A document is held out for validation when its id, a uniform hash of its text, falls in the lowest
    `validation_share`: the split needs no state and no document can be in both.

    Raises:
        MarinError: a split is empty, or the shards do not read back as written.
    """
    encoder = load_tokenizer(tokenizer)
    bos, eos = special_ids(tokenizer, encoder)
    frame = read_documents(curated)
    held_out = pl.col("id").str.head(8).str.to_integer(base=16, dtype=pl.UInt64) < int(validation_share * 2**32)
    summary: dict[str, Any] = {}
    for split, documents in (("train", frame.filter(~held_out)), ("validation", frame.filter(held_out))):
        if documents.is_empty():
            raise MarinError(
                f"tokenized/{source}: no document falls into the {split} split ({len(frame)} documents, "
                f"validation share {validation_share}); give the source more documents or change the share"
            )
        rows = _encoded(encoder, bos, eos, documents["text"].to_list())
        tokens = _write_cache(rows, writer, split, {"tokenizer": tokenizer.record.fingerprint, "bos": bos, "eos": eos})
        summary |= {f"{split}_documents": len(documents), f"{split}_tokens": tokens}
        log(f"tokenized/{source}: {tokens:,} {split} tokens")
    text_bytes = int(frame["text"].str.len_bytes().sum())
    summary["bytes_per_token"] = round(text_bytes / (summary["train_tokens"] + summary["validation_tokens"]), 3)
    return summary


def _encoded(encoder: "Tokenizer", bos: int, eos: int, texts: list[str]) -> Iterator[list[dict[str, np.ndarray]]]:
    for start in range(0, len(texts), _BATCH_DOCUMENTS):
        encodings = encoder.encode_batch_fast(texts[start : start + _BATCH_DOCUMENTS], add_special_tokens=False)
        yield [{"input_ids": np.array([bos, *encoding.ids, eos], dtype=np.int32)} for encoding in encodings]


def _write_cache(
    batches: Iterator[list[dict[str, np.ndarray]]], writer: Writer, split: str, metadata: dict[str, Any]
) -> int:
    from levanter.store.cache import CacheMetadata, SerialCacheWriter, TreeCache

    exemplar = {"input_ids": np.zeros((0,), dtype=np.int32)}
    written = 0
    with SerialCacheWriter(writer.path(split), exemplar, CacheMetadata(metadata), shard_name=split) as cache:
        for batch in batches:
            writer.check()
            cache.write_batch(batch)
            written += sum(len(row["input_ids"]) for row in batch)
    store = TreeCache.load(writer.path(split), exemplar, CacheMetadata(metadata)).store
    read_back = int(store.tree["input_ids"].data_size)
    if read_back != written:
        raise MarinError(f"{writer.path(split)}: {read_back:,} tokens read back, {written:,} written; check the disk")
    return written
