"""What the sources that a model was trained on had of an evaluation's text, from the decontamination stage.

The documents counted here were found, and left out before anything was trained on. That a source had many is a warning
nevertheless: more may be there in other words or in pieces.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from marin_core.data.documents import attribute_parts, read_part
from marin_core.evals.result import EvalResult
from marin_core.store import Artifact


def found_in(name: str, items: int, contamination: Mapping[str, Artifact]) -> dict[str, Any]:
    """What each training source's `contamination/<source>` artifact says of the evaluation source `name`, which has so
    many documents (`items`): `items`, and by training source under `training_sources`

    - `documents_checked` and `documents_removed`: how many were held against it, and how many contain an item of it;
    - `items_found`: how many of its items are the best match of one of these, and `items_share` their share;
    - `highest_overlap`: the largest share of n-grams that an item and a document have in common.
    """
    return {
        "items": items,
        "training_sources": {source: _found(name, items, each) for source, each in contamination.items()},
    }


def with_contamination(result: EvalResult, found: Mapping[str, Mapping[str, Any]]) -> EvalResult:
    """The result with what was found of the evaluation sources that hold its text; None of them is looked for: None."""
    known = {source: found[source] for source in result.sources if source in found}
    return replace(result, contamination=known or None)


def removed_documents(result: EvalResult) -> int | None:
    """How many documents of the training sources had text of the evaluation; None where nobody looked."""
    if result.contamination is None:
        return None
    sources = [each for found in result.contamination.values() for each in found["training_sources"].values()]
    return sum(source["documents_removed"] for source in sources)


def _found(name: str, items: int, contamination: Artifact) -> dict[str, Any]:
    parts = attribute_parts(contamination, "matches")
    matches = pl.concat([read_part(contamination, part, ("evaluation", "item", "overlap")) for part in parts])
    ours = matches.filter(pl.col("evaluation") == name)
    different = ours["item"].n_unique()
    return {
        "documents_checked": contamination.record.summary["documents_in"],
        "documents_removed": len(ours),
        "items_found": different,
        "items_share": different / max(1, items),
        "highest_overlap": float(ours["overlap"].max() or 0),  # pyright: ignore[reportArgumentType]
    }
