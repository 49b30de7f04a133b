"""What the stages before say of the documents of a normalized part: which of them are removed, by which, and why.

A document without its row is an error, never one that is kept. Finding out what to remove is not here.
"""

from collections.abc import Sequence

import polars as pl

from marin_core.data.documents import read_part
from marin_core.errors import MarinError
from marin_core.store import Artifact

REMOVED = pl.Schema({"id": pl.String, "stage": pl.String, "reason": pl.String, "detail": pl.String})


def attribute_path(folder: str, part: str) -> str:
    """Path of the rows in `folder` that describe the documents of a normalized part."""
    return f"{folder}/{part.rsplit('/', 1)[-1]}"


def removed_documents(
    part: str, ids: pl.Series, quality: Artifact, near_duplicates: Artifact, contamination: Artifact | None = None
) -> pl.DataFrame:
    """Of the documents `ids` of a part those that a stage removes, sorted by id: `id`, `stage`, `reason`, and in
    `detail` what it is a duplicate of or which evaluation item it contains.

    Raises:
        MarinError: a stage has no rows for this part, or not for exactly the documents that it got.
    """
    verdicts = _rows(quality, "verdicts", part, ("id", "keep", "reason"))
    _check(quality, "verdicts", part, verdicts["id"], ids)
    removed = [verdicts.filter(~pl.col("keep")).select("id", stage=pl.lit("quality"), reason="reason", detail=None)]
    kept = verdicts.filter("keep")["id"]
    duplicates = _rows(near_duplicates, "duplicates", part, ("id", "cluster", "duplicate"))
    _check(near_duplicates, "duplicates", part, duplicates["id"], kept)
    removed.append(
        duplicates.filter("duplicate").select(
            "id", stage=pl.lit("near_duplicates"), reason=pl.lit("near_duplicate"), detail="cluster"
        )
    )
    if contamination is not None:
        matches = _rows(contamination, "matches", part, ("id", "evaluation", "item", "matched"))
        _check(contamination, "matches", part, matches["id"], duplicates.filter(~pl.col("duplicate"))["id"], some=True)
        detail = pl.format("{}: {} n-grams", "item", "matched")
        removed.append(matches.select("id", stage=pl.lit("contamination"), reason="evaluation", detail=detail))
    return pl.concat([frame.cast(REMOVED) for frame in removed]).sort("id")


def _rows(artifact: Artifact, folder: str, part: str, columns: Sequence[str]) -> pl.DataFrame:
    path = attribute_path(folder, part)
    if all(entry.path != path for entry in artifact.record.files):
        raise MarinError(
            f"{artifact.record.name} ({artifact.record.fingerprint}) has no {path}, which describes the documents of "
            f"{part}; materialize {artifact.record.name} again"
        )
    return read_part(artifact, path, columns)


def _check(
    artifact: Artifact, folder: str, part: str, found: pl.Series, expected: pl.Series, *, some: bool = False
) -> None:
    """With `some` not every expected document needs a row."""
    if found.n_unique() == len(found):
        missing = expected.filter(~expected.is_in(found.implode()))
        unknown = found.filter(~found.is_in(expected.implode()))
        if not len(unknown) and (some or not len(missing)):
            return
        what = f"{len(missing)} of {len(expected)} documents have no row" if len(missing) and not some else ""
        what = what or f"{len(unknown)} rows are of documents that it did not get (the first is {unknown[0]})"
    else:
        what = f"{len(found) - found.n_unique()} documents have several rows"
    raise MarinError(
        f"{artifact.record.name} ({artifact.record.fingerprint}) {attribute_path(folder, part)}: {what}; expected one "
        f"row for each document that the stages before it kept; materialize {artifact.record.name} again"
    )
