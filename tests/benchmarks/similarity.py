"""How good a near-duplicate detection is: recall of what was planted, and how alike its linked pairs are."""

import random
import re
import statistics
from typing import Any

import polars as pl

WORDS = 5
SAMPLE = 2000
ALIKE = 0.7


def quality(links: str, truth: str, documents: list[str]) -> dict[str, Any]:
    """`recall` by kind of edit: planted documents that are in one cluster with their original. `mean_jaccard` and
    `alike` (share of 0.7 and more) of word 5-grams, over a sample of linked documents and their cluster's first."""
    linked = pl.read_parquet(links)
    texts = pl.read_parquet(documents, columns=["id", "text"])
    planted = pl.read_parquet(truth).join(texts, on="id", how="semi")
    planted = planted.join(texts, left_on="of", right_on="id", how="semi")
    found = planted.join(linked, on="id", how="left").join(
        linked, left_on="of", right_on="id", how="left", suffix="_of"
    )
    hits = found.group_by("kind").agg((pl.col("cluster") == pl.col("cluster_of")).fill_null(False).mean(), pl.len())
    recall = {row["kind"]: row["cluster"] for row in hits.iter_rows(named=True)}
    pairs = linked.filter(pl.col("id") != pl.col("cluster")).sort("id")
    pairs = pairs[sorted(random.Random(1).sample(range(len(pairs)), min(SAMPLE, len(pairs))))]
    pairs = pairs.join(texts, on="id").join(texts, left_on="cluster", right_on="id", suffix="_of")
    likeness = [jaccard(row["text"], row["text_of"]) for row in pairs.iter_rows(named=True)] or [0.0]
    alike = sum(value >= ALIKE for value in likeness) / len(likeness)
    return {"recall": recall, "mean_jaccard": statistics.mean(likeness), "alike": alike, "planted": len(planted)}


def jaccard(one: str, other: str) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


def shingles(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[at : at + WORDS]) for at in range(max(1, len(words) - WORDS + 1))}
