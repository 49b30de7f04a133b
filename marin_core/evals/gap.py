"""The byte-aligned perplexity gap of two models: where in the text one predicts better, whatever their tokenizers.

Both models' nats lie on the bytes of the same documents, so they can be compared on any stretch of text without running
a model. Differences are those of the first model minus those of the second, in bits per byte: negative where the first
is better. Kinds of text are those of Levanter's perplexity gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from marin_core.errors import MarinError
from marin_core.evals.alignment import byte_offsets
from marin_core.evals.averages import Average, Averages
from marin_core.evals.perplexity import BITS, DocumentScores, aligned_losses

# Characters shown on each side of a span.
_CONTEXT = 30


@dataclass(frozen=True)
class GapRow:
    """Some bytes of the documents: what each model needs for them, in bits per byte, and the difference; `bits` is the
    difference over all of them, None for a mean of sets. The standard error is over documents, None for kinds of
    text."""

    name: str
    documents: int
    bytes: int
    first: float
    second: float
    gap: float
    stderr: float | None
    bits: float | None


@dataclass(frozen=True)
class Gap:
    """`sets` by size of the difference, `overall` the rows `micro` and `macro`, `kinds` of text (`text/number`,
    `whitespace/newline`, …), and the `documents` and `spans` that differ most, in both directions: dictionaries with
    `set`, `id`, `bytes`, `first`, `second`, `gap`, `bits` and, of spans, `begin` and `end` in bytes, `kind`, `text`
    and its `context`. `left_out` counts documents that only one of the models was scored on."""

    overall: tuple[GapRow, ...]
    sets: tuple[GapRow, ...]
    kinds: tuple[GapRow, ...]
    documents: tuple[Mapping[str, Any], ...]
    spans: tuple[Mapping[str, Any], ...]
    left_out: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def shared_documents(first: DocumentScores, second: DocumentScores) -> pl.DataFrame:
    """The documents that both were scored on: `set`, `id`, `bytes` (the beginning that both have), and `ends` and
    `losses` of the first, with `_second` of the second.

    Raises:
        MarinError: there are none.
    """
    columns = ("set", "id", "bytes", "ends", "losses")
    both = first.table.select(columns).join(
        second.table.select(columns), on=["set", "id"], suffix="_second", maintain_order="left"
    )
    if both.is_empty():
        raise MarinError(
            f"the models were scored on different documents ({len(first.table)} and {len(second.table)}, none in "
            f"common); evaluate both on the same validation sets"
        )
    return both.with_columns(bytes=pl.min_horizontal("bytes", "bytes_second")).drop("bytes_second")


def byte_aligned_gap(
    first: DocumentScores, second: DocumentScores, texts: Mapping[tuple[str, str], str], top: int = 20
) -> Gap:
    """Compare two models on the documents that both were scored on; `texts` by (set, id) are those documents', of which
    the scored beginning counts. `top` documents and spans are listed for each direction.

    Raises:
        MarinError: they share no documents, or the text of one is missing.
    """
    both = shared_documents(first, second)
    if missing := [key for key in both.select("set", "id").iter_rows() if key not in texts]:
        raise MarinError(
            f"{len(missing)} documents have no text, the first is {missing[0][1]} of validation set {missing[0][0]}; "
            f"materialize the source's documents again"
        )
    segments = pl.concat(
        [_segments(row, texts[row["set"], row["id"]]) for row in both.iter_rows(named=True)], how="vertical"
    )
    documents = segments.group_by("set", "id", maintain_order=True).agg(
        pl.col("bytes", "first", "second").sum(), begin=pl.lit(0), end=pl.col("end").max()
    )
    kinds = segments.group_by("kind", maintain_order=True).agg(
        pl.col("bytes", "first", "second").sum(), documents=pl.col("id").n_unique()
    )
    rows = _by_set(documents)
    shown = [_shown(row, texts[row["set"], row["id"]]) for row in _extremes(segments, top)]
    return Gap(
        overall=tuple(row for row in rows if row.name in ("micro", "macro")),
        sets=_largest_first(row for row in rows if row.name not in ("micro", "macro")),
        kinds=_largest_first(_row(row["kind"], row["documents"], row) for row in kinds.iter_rows(named=True)),
        documents=tuple(_rates(row) for row in _extremes(documents.drop("begin", "end"), top)),
        spans=tuple(shown),
        left_out=len(first.table) + len(second.table) - 2 * len(both),
    )


def _segments(row: Mapping[str, Any], text: str) -> pl.DataFrame:
    """The segments of a document's shared beginning: `set`, `id`, `begin`, `end`, `bytes`, `kind`, and the nats that
    the models need, `first` and `second`."""
    from levanter.analysis.perplexity_gap import bucket_for_segment, iter_scored_segments

    found = list(iter_scored_segments(text, byte_offsets(text), 0, row["bytes"]))
    begin = np.asarray([segment.byte_start for segment in found], np.int64)
    end = np.asarray([segment.byte_end for segment in found], np.int64)
    nats = {
        name: losses.cumulated(end) - losses.cumulated(begin)
        for name, losses in (
            ("first", aligned_losses(row)),
            ("second", aligned_losses({key: row[f"{key}_second"] for key in ("ends", "losses")})),
        )
    }
    kinds = [bucket_for_segment(segment.text) for segment in found]
    columns = {"begin": begin, "end": end, "bytes": end - begin, **nats}
    frame = pl.DataFrame(columns).with_columns(kind=pl.Series(kinds, dtype=pl.String))
    return frame.select(pl.lit(row["set"]).alias("set"), pl.lit(row["id"]).alias("id"), pl.all())


def _by_set(documents: pl.DataFrame) -> list[GapRow]:
    sets = {str(name): rows for (name,), rows in documents.group_by("set", maintain_order=True)}
    sizes = {name: rows["bytes"].to_numpy() for name, rows in sets.items()}

    def averages(column: pl.Expr) -> dict[str, Average]:
        values = {name: rows.select(column.alias("nats"))["nats"].to_numpy() for name, rows in sets.items()}
        return {name: each.scaled(BITS) for name, each in Averages.of(values, sizes).named().items()}

    first, second = averages(pl.col("first")), averages(pl.col("second"))
    rows = []
    for name, gap in averages(pl.col("first") - pl.col("second")).items():
        size = int(sizes[name].sum()) if name in sizes else int(documents["bytes"].sum())
        count = len(sizes[name]) if name in sizes else len(documents)
        bits = None if name == "macro" else gap.value * size
        rows.append(GapRow(name, count, size, first[name].value, second[name].value, gap.value, gap.stderr, bits))
    return rows


def _row(name: str, documents: int, row: Mapping[str, Any]) -> GapRow:
    rates = _rates(row)
    return GapRow(name, documents, row["bytes"], rates["first"], rates["second"], rates["gap"], None, rates["bits"])


def _rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its nats as bits per byte, their difference, and the difference in bits."""
    bits = (row["first"] - row["second"]) * BITS
    first, second = (row[name] * BITS / row["bytes"] for name in ("first", "second"))
    return {**row, "first": first, "second": second, "gap": bits / row["bytes"], "bits": bits}


def _extremes(rows: pl.DataFrame, top: int) -> list[dict[str, Any]]:
    """The rows in which the first model is worst, then those in which the second is, each the worst first."""
    ordered = rows.with_columns(gap=pl.col("first") - pl.col("second")).sort("gap", maintain_order=True)
    worse = ordered.filter(pl.col("gap") > 0).tail(top).reverse()
    better = ordered.filter(pl.col("gap") < 0).head(top)
    return pl.concat([worse, better]).drop("gap").to_dicts()


def _shown(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    data = text.encode()
    begin, end = row["begin"], row["end"]
    before = data[:begin].decode(errors="ignore")[-_CONTEXT:]
    after = data[end : end + 4 * _CONTEXT].decode(errors="ignore")[:_CONTEXT]
    span = data[begin:end].decode(errors="replace")
    return {**_rates(row), "text": span, "context": f"{before}[{span}]{after}"}


def _largest_first(rows: Iterable[GapRow]) -> tuple[GapRow, ...]:
    return tuple(sorted(rows, key=lambda row: -abs(row.bits or 0)))
