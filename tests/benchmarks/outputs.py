"""What our stages wrote, read for a check: token ids against the reference, clusters of near-duplicates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from documents import Set
from measuring import Clock

from marin_core.store import ArtifactSpec, Store


def check_ids(clock: Clock, store: str, name: str, spec: dict[str, Any], tokenizer: str) -> dict[str, Any]:
    """Every twentieth row of the training cache, as Levanter reads it, against the reference tokenizer's ids of its
    document with BOS and EOS around. Facts: documents `checked` and `differing`."""
    from levanter.store.cache import TreeCache
    from tokenizers import Tokenizer

    artifact = Store(store).artifact(ArtifactSpec.from_json(spec))
    config = json.loads(Path(tokenizer, "tokenizer_config.json").read_text())
    reference = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    reference.encode_special_tokens = True
    bos, eos = (reference.token_to_id(config[f"{end}_token"]) for end in ("bos", "eos"))
    index = sorted(e.path for e in artifact.record.files if e.path.startswith("index/train/"))
    ids = pl.concat([pl.read_parquet(artifact.path(path), columns=["id"]) for path in index])["id"]
    texts = dict(pl.read_parquet(Set(store, name).files("curated"), columns=["id", "text"]).iter_rows())
    cache = TreeCache.load(artifact.path("train"), {"input_ids": np.zeros((0,), np.int32)})
    rows = range(0, len(ids), 20)
    differing = 0
    with clock:
        for row in rows:
            found: Any = cache[row]
            right = [bos, *reference.encode(texts[ids[row]], add_special_tokens=False).ids, eos]
            differing += not np.array_equal(found["input_ids"], right)
    return {"checked": len(rows), "differing": differing}


def write_links(store: Store, spec: ArtifactSpec, links: str) -> None:
    """The clusters of a near-duplicates artifact in the form that `similarity.py` reads."""
    artifact = store.artifact(spec)
    parts = [artifact.path(entry.path) for entry in artifact.record.files]
    found = pl.read_parquet(parts, columns=["id", "cluster", "duplicate"]).drop_nulls("cluster")
    found.rename({"duplicate": "removed"}).write_parquet(links)
