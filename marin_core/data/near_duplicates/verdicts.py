"""Verdicts on candidates: the phases `gather`, `verify` and `write`, from clusters to a row for each document.

When a document counts as contained in another is in `containment.py`.
"""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from marin_core.data.documents import write_part
from marin_core.data.near_duplicates.containment import decide
from marin_core.data.near_duplicates.gram_sets import GramSets, gram_sets
from marin_core.data.near_duplicates.plan import Plan, keys_of, parts_of
from marin_core.data.near_duplicates.work_batches import arrow, partitioned, polars, read_batches, write_batches
from marin_core.data.stages import Counts

_SCHEMA: Any = {"id": pl.String, "cluster": pl.String, "duplicate": pl.Boolean, "containment": pl.Float64}


def gather(plan: Plan, part: int) -> Counts:
    """The n-grams of a part's clustered documents, divided by the group of their cluster."""
    clusters = polars(read_batches(plan.workspace, ["clusters.arrow"], part))
    grams = plan.containment.grams
    documents, sets = [clusters.clear().with_columns(id=pl.lit(""), length=pl.lit(0, pl.UInt32))], []
    for batch in plan.kept(part) if len(clusters) else ():
        clustered = clusters.join(batch, on="key", maintain_order="left")
        # A text of which a part would not be compared has no n-grams, and so stays.
        compared = pl.when(pl.col("text").str.len_chars() <= grams.text_cap).then("text").otherwise(pl.lit(""))
        sets.append(gram_sets(clustered.select(compared)["text"], grams))
        documents.append(clustered.select("key", "cluster", "group", "id", length=pl.col("text").str.len_bytes()))
    frame, joined = pl.concat(documents), GramSets.joined(sets)
    table = arrow(frame.select("key", "cluster", "id", "length")).append_column("grams", joined.to_arrow())
    by_group = partitioned(table, frame["group"].to_numpy(), plan.groups)
    write_batches(plan.workspace, f"gather/{part:05d}.arrow", by_group)
    return {}


def verify(plan: Plan, group: int) -> Counts:
    """Decide on the documents of a group of clusters; the decisions are divided by part."""
    table = read_batches(plan.workspace, plan.files("gather"), group)
    key, cluster, length = (table[name].to_numpy() for name in ("key", "cluster", "length"))
    order = np.lexsort((key, -length.astype(np.int64), cluster))
    key, cluster = key[order], np.unique(cluster[order], return_inverse=True)[1]
    sets = GramSets.from_arrow(table["grams"].combine_chunks()).take(order)
    common = read_batches(plan.workspace, ["boilerplate.arrow"])["gram"].to_numpy()
    decision = decide(cluster, sets, common, plan.containment)
    duplicate = decision.by >= 0
    canonical = np.searchsorted(cluster, cluster)
    rows = pa.table(
        {
            "key": key,
            "cluster": table["id"].take(pa.array(order[canonical])),
            "duplicate": duplicate,
            "containment": decision.containment,
        }
    )
    write_batches(plan.workspace, f"verify/{group:05d}.arrow", partitioned(rows, parts_of(key), len(plan.parts)))
    measured = ~np.isnan(decision.containment)
    return {
        "compared_pairs": decision.compared,
        "verified": int(duplicate.sum()),
        "refused": int((measured & ~duplicate).sum()),
    }


def write(plan: Plan, part: int) -> Counts:
    """A row for each document of a part that quality kept."""
    lengths = polars(read_batches(plan.workspace, [f"lengths/{part:05d}.arrow"]))
    groups = [f"verify/{group:05d}.arrow" for group in range(plan.groups)]
    decided = polars(read_batches(plan.workspace, groups, part))
    verdicts = plan.verdicts(part)
    keys = pl.Series("key", keys_of(part, np.arange(len(verdicts))))
    frame = (
        verdicts.with_columns(keys)
        .filter("keep")
        .join(decided, on="key", how="left", maintain_order="left")
        .join(lengths, on="key", how="left", maintain_order="left")
        .with_columns(pl.col("duplicate").fill_null(False), pl.col("containment").fill_nan(None))
    )
    _write(plan, part, frame)
    kept = frame.filter(~pl.col("duplicate"))
    return {"documents": len(kept), "bytes": int(kept["length"].sum())}


def write_exempt(plan: Plan, part: int) -> Counts:
    """Every document of a part that quality kept, none of them a duplicate."""
    documents, size = [pl.DataFrame(schema={"id": pl.String})], 0
    for batch in plan.kept(part):
        documents.append(batch.select("id"))
        size += int(batch["text"].str.len_bytes().sum())
    ids = pl.concat(documents)
    _write(plan, part, ids.with_columns(cluster=None, duplicate=False, containment=None))
    return {"documents_in": len(ids), "bytes_in": size, "documents": len(ids), "bytes": size}


def _write(plan: Plan, part: int, frame: pl.DataFrame) -> None:
    name = plan.parts[part].rsplit("/", 1)[-1]
    write_part(plan.workspace, f"duplicates/{name}", frame.select(list(_SCHEMA)).cast(_SCHEMA))
