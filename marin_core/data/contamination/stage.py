"""The contamination stage: which documents contain an item of an evaluation source. The rules are in `overlap.py`.

Files: `matches/part-….parquet`, named as the normalized parts, a row per contaminated document: `id`, `evaluation`,
`item` (the id of the evaluation document), `overlap`, `matched` (n-grams).
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from marin_core.data.attributes import attribute_path, removed_documents
from marin_core.data.contamination.config import OverlapRules
from marin_core.data.contamination.overlap import OverlapIndex
from marin_core.data.contamination.overlap_index import build_index, without_common
from marin_core.data.documents import document_parts, read_part, retention_summary, text_batches, write_part
from marin_core.data.flat.texts import MAX_CHARACTERS
from marin_core.data.flat.word_grams import WordGrams
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, Phase, Stage
from marin_core.store import Artifact, Workspace

MATCHES = pl.Schema(
    {"id": pl.String, "evaluation": pl.String, "item": pl.String, "overlap": pl.Float64, "matched": pl.Int64}
)
_INDEX = "evaluations.npz"
_BATCH_BYTES = 500_000


def contamination_stage(
    source: Source,
    normalized: Artifact,
    quality: Artifact,
    near_duplicates: Artifact,
    evaluations: Mapping[str, Artifact],
    workspace: Workspace,
    log: Callable[[str], None],
    rules: OverlapRules | None = None,
) -> Stage:
    """Compare the documents that quality and near-duplicate removal kept with every evaluation document.

    Two phases: one item makes the index of the evaluation sources (by name, normalized), then an item per part.

    Raises:
        MarinError: a stage before has no rows for a document, or the evaluation sources are too large.
    """
    rules = rules or OverlapRules()
    parts = document_parts(normalized)

    def surviving(part: str) -> Iterator[pl.DataFrame]:
        ids = read_part(normalized, part, ("id",))["id"]
        removed = removed_documents(part, ids, quality, near_duplicates)["id"].implode()
        for batch in text_batches(normalized, part, batch_bytes=_BATCH_BYTES):
            yield batch.filter(~pl.col("id").is_in(removed))

    def sample() -> Iterator[WordGrams]:
        documents, size = rules.sample_documents, rules.sample_bytes
        for part in parts:
            for batch in surviving(part):
                batch = batch.head(documents)
                yield WordGrams(batch["text"].to_list(), rules.n)
                documents -= len(batch)
                size -= _bytes(batch)
                if documents <= 0 or size <= 0:
                    return

    def make_index(item: int) -> Counts:
        index = build_index(evaluations, rules)
        checked = len(index.keys)
        index, common = without_common(index, sample() if checked else (), rules)
        with workspace.open_work(_INDEX) as file:
            index.save(file)
        # Of items of numbers or boilerplate nothing is left that could be found.
        short = len(set(index.short_items.tolist()))
        return {
            "evaluation_items": len(index.ids),
            "evaluation_items_unchecked": len(index.ids) - int((index.totals > 0).sum()) - short,
            "evaluation_ngrams": len(index.keys),
            "common_ngrams": common,
        }

    @functools.cache
    def index() -> OverlapIndex:
        with workspace.open_work(_INDEX, "rb") as file:
            return OverlapIndex.load(file)

    def match_part(item: int) -> Counts:
        frames, counts = [MATCHES.to_frame()], {"documents_in": 0, "documents": 0, "bytes": 0}
        for batch in surviving(parts[item]):
            matches = _matches(batch, index(), rules)
            kept = batch.filter(~pl.col("id").is_in(matches["id"].implode()))
            counts["documents_in"] += len(batch)
            counts["documents"] += len(kept)
            counts["bytes"] += _bytes(kept)
            frames.append(matches)
        found = pl.concat(frames)
        write_part(workspace, attribute_path("matches", parts[item]), found)
        return {**counts, "removed": dict(found["evaluation"].value_counts().sort("evaluation").iter_rows())}

    def finish(counts: Sequence[Sequence[Counts]]) -> Counts:
        summary = {**counts[0][0], **retention_summary(counts[1])}
        contaminated = summary["documents_in"] - summary["documents"]
        log(f"contamination/{source.name}: {contaminated:,} of {summary['documents_in']:,} documents contain an item")
        return summary

    return Stage((Phase("index", 1, make_index), Phase("match", len(parts), match_part)), finish)


def _matches(batch: pl.DataFrame, index: OverlapIndex, rules: OverlapRules) -> pl.DataFrame:
    """The best match of every document of a batch that contains an item, as `MATCHES`."""
    found = pl.concat([_matches_of_texts(piece, index, rules) for piece in _pieces(batch)])
    best_first = found.sort("overlap", "matched", "evaluation", "item", descending=[True, True, False, False])
    return (
        found.select("id")
        .unique(maintain_order=True)
        .join(best_first.unique("id", keep="first", maintain_order=True), on="id", maintain_order="left")
    )


def _pieces(batch: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The batch; with a text too long for the arrays, each document by itself and a piece at a time."""
    if not (batch["text"].str.len_chars() > MAX_CHARACTERS).any():
        yield batch
        return
    for document in batch.iter_slices(1):
        text = document["text"].item()
        for begin in range(0, len(text), MAX_CHARACTERS):
            yield document.with_columns(text=pl.lit(text[begin : begin + MAX_CHARACTERS]))


def _matches_of_texts(batch: pl.DataFrame, index: OverlapIndex, rules: OverlapRules) -> pl.DataFrame:
    found = index.matches(WordGrams(batch["text"].to_list(), rules.n), rules)
    columns = {
        "id": batch["id"].gather(found.texts),
        "evaluation": index.names[index.evaluations[found.items]].tolist(),
        "item": index.ids[found.items].tolist(),
        "overlap": found.overlap,
        "matched": found.matched,
    }
    return pl.DataFrame(columns, schema=MATCHES)


def _bytes(batch: pl.DataFrame) -> int:
    return int(batch["text"].str.len_bytes().sum())
