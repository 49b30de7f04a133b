"""Candidates for near-duplicates: the phases `sign`, `link` and `cluster`, from texts to clusters of documents.

Whether a candidate is removed is in `verdicts.py`.
"""

import itertools

import numpy as np
import polars as pl
import pyarrow as pa

from marin_core.data.flat.arrays import Array
from marin_core.data.near_duplicates.clusters import Components, divide, star_edges
from marin_core.data.near_duplicates.containment import boilerplate
from marin_core.data.near_duplicates.gram_sets import gram_sets
from marin_core.data.near_duplicates.minhash import band_hashes
from marin_core.data.near_duplicates.plan import Plan, parts_of
from marin_core.data.near_duplicates.work_batches import arrow, partitioned, read_batches, write_batches
from marin_core.data.stages import Counts

# A larger cluster is divided into several.
_CLUSTER_DOCUMENTS = 100_000
_CLUSTER_BYTES = 24_000_000
# A bucket above this is counted: something other than copies makes its documents alike.
_LARGE_BUCKET = 100_000
# Boilerplate is looked for in the beginnings of documents.
_SAMPLE_CHARACTERS = 50_000


def sign(plan: Plan, part: int) -> Counts:
    """A part's band hashes, divided by hash; the lengths of its documents; n-grams of the first of them.

    Ids are hashes, so the first documents of every part are a random sample.
    """
    hashes, keys = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    lengths = [pl.DataFrame(schema={"key": pl.UInt64, "length": pl.UInt32})]
    sample, left = [np.zeros(0, np.uint32)], plan.sample
    for batch in plan.kept(part):
        found, places = band_hashes(batch["text"], plan.config)
        hashes.append(found.ravel())
        keys.append(np.repeat(batch["key"].to_numpy()[places], plan.config.bands))
        lengths.append(batch.select("key", length=pl.col("text").str.len_bytes()))
        sampled = batch["text"].head(left).str.slice(0, _SAMPLE_CHARACTERS)
        sample.append(gram_sets(sampled, plan.containment.grams).grams)
        left -= len(sampled)
    bands = pa.table({"hash": np.concatenate(hashes), "key": np.concatenate(keys)})
    partition = (bands["hash"].to_numpy() % np.uint64(plan.partitions)).astype(np.int64)
    write_batches(plan.workspace, f"sign/{part:05d}.arrow", partitioned(bands, partition, plan.partitions))
    documents = pl.concat(lengths)
    write_batches(plan.workspace, f"lengths/{part:05d}.arrow", [arrow(documents)])
    write_batches(plan.workspace, f"sample/{part:05d}.arrow", [pa.table({"gram": np.concatenate(sample)})])
    return {"documents_in": len(documents), "bytes_in": int(documents["length"].sum())}


def link(plan: Plan, partition: int) -> Counts:
    """Equal band hashes of a partition as edges."""
    bands = read_batches(plan.workspace, plan.files("sign"), partition)
    edges = star_edges(bands["hash"].to_numpy(), bands["key"].to_numpy())
    ends = pa.table({"one": edges.pairs[:, 0], "other": edges.pairs[:, 1]})
    write_batches(plan.workspace, f"link/{partition:05d}.arrow", [ends])
    return {
        "candidate_edges": len(edges.pairs),
        "large_buckets": int((edges.buckets > _LARGE_BUCKET).sum()),
        "largest_bucket": int(edges.buckets.max(initial=0)),
    }


def cluster(plan: Plan) -> Counts:
    """Connected components; which cluster each document is in, by part; and the source's boilerplate.

    Memory: that of `Components`, and the n-grams of the sample.
    """
    components = Components()
    for partition in range(plan.partitions):
        ends = read_batches(plan.workspace, [f"link/{partition:05d}.arrow"])
        components.add(np.stack([ends["one"].to_numpy(), ends["other"].to_numpy()], axis=1))
    components.merge()
    work = divide(
        components.keys,
        components.roots,
        _lengths(plan, components.keys),
        plan.groups,
        _CLUSTER_DOCUMENTS,
        _CLUSTER_BYTES,
    )
    rows = pa.table({"key": components.keys, "cluster": work.cluster, "group": work.group})
    write_batches(plan.workspace, "clusters.arrow", partitioned(rows, parts_of(components.keys), len(plan.parts)))
    write_batches(plan.workspace, "boilerplate.arrow", [pa.table({"gram": _boilerplate(plan)})])
    return {
        "clusters": int(work.cluster.max(initial=-1)) + 1,
        "clustered_documents": len(components.keys),
        "largest_cluster": work.largest,
        "split_clusters": work.split,
    }


def _lengths(plan: Plan, keys: Array) -> Array:
    """Bytes of the documents with these (ascending) keys."""
    found = [np.zeros(0, np.uint32)]
    bounds = np.searchsorted(parts_of(keys), np.arange(len(plan.parts) + 1))
    for path, (start, stop) in zip(plan.files("lengths"), itertools.pairwise(bounds), strict=True):
        lengths = read_batches(plan.workspace, [path])
        found.append(lengths["length"].to_numpy()[np.searchsorted(lengths["key"].to_numpy(), keys[start:stop])])
    return np.concatenate(found)


def _boilerplate(plan: Plan) -> Array:
    grams = read_batches(plan.workspace, plan.files("sample"))["gram"].to_numpy()
    sizes = [read_batches(plan.workspace, [path]).num_rows for path in plan.files("lengths")]
    return boilerplate(grams, sum(min(size, plan.sample) for size in sizes), plan.containment)
