"""How good a near-duplicate detection is: recall of what was planted, and likeness of what it removes to what stays."""

import random
import re
import statistics
from collections import defaultdict
from functools import cache
from typing import Any

import polars as pl

WORDS = 5
SAMPLE = 2000
ALIKE = 0.7
# Of a large cluster, so many of the documents that stay are looked at.
STAYING = 30


def quality(links: str, truth: str, documents: list[str]) -> dict[str, Any]:
    """`recall` by kind of edit: planted documents in one cluster with their original, one of the two removed.
    `mean_jaccard`, and `alike`, the share of 0.7 and more: word 5-grams of a sample of removed documents and of the
    most similar document that stays in their cluster. `links` has id, cluster, removed."""
    linked = pl.read_parquet(links)
    texts = pl.read_parquet(documents, columns=["id", "text"])
    planted = pl.read_parquet(truth).join(texts, on="id", how="semi")
    planted = planted.join(texts, left_on="of", right_on="id", how="semi")
    pairs = planted.join(linked, on="id", how="left").join(
        linked, left_on="of", right_on="id", how="left", suffix="_of"
    )
    found = (pl.col("cluster") == pl.col("cluster_of")) & (pl.col("removed") | pl.col("removed_of"))
    hits = pairs.group_by("kind").agg(found.fill_null(False).mean().alias("recall"))
    likeness = likenesses(linked, dict(texts.iter_rows())) or [0.0]
    return {
        "recall": dict(hits.iter_rows()),
        "mean_jaccard": statistics.mean(likeness),
        "alike": sum(value >= ALIKE for value in likeness) / len(likeness),
        "removed": int(linked["removed"].sum()),
    }


def likenesses(linked: pl.DataFrame, texts: dict[str, str]) -> list[float]:
    """Jaccard similarity of a sample of the removed documents to the closest that stays."""
    staying = defaultdict(list)
    for name, cluster in linked.filter(~pl.col("removed")).sort("id").select("id", "cluster").iter_rows():
        if len(staying[cluster]) < STAYING:
            staying[cluster].append(name)
    removed = list(linked.filter("removed").sort("id").select("id", "cluster").iter_rows())
    sample = random.Random(1).sample(removed, min(SAMPLE, len(removed)))

    @cache
    def shingles(name: str) -> set[str]:
        words = re.findall(r"\w+", texts[name].lower())
        return {" ".join(words[at : at + WORDS]) for at in range(max(1, len(words) - WORDS + 1))}

    def jaccard(one: str, other: str) -> float:
        a, b = shingles(one), shingles(other)
        return len(a & b) / len(a | b)

    return [max((jaccard(name, other) for other in staying[cluster]), default=0.0) for name, cluster in sample]
