"""The quality stage: a verdict for every normalized document. The rules are in `rules.py`.

Files: `verdicts/part-….parquet`, named as the normalized parts, a row per document: `id`, `keep`, `reason`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from marin_core.data.attributes import attribute_path
from marin_core.data.documents import document_parts, retention_summary, text_batches, write_part
from marin_core.data.quality.config import rules_named
from marin_core.data.quality.rules import reasons
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, Phase, Stage
from marin_core.store import Artifact, Workspace

# Small enough for a batch's arrays to stay in the processor's cache.
_BATCH_BYTES = 500_000


def quality_stage(source: Source, normalized: Artifact, workspace: Workspace, log: Callable[[str], None]) -> Stage:
    """Judge every document by the source's rules; an item per normalized part.

    Raises:
        MarinError: the source's rules have no such name, or a part is missing or damaged.
    """
    rules = rules_named(source.curation.rules)
    parts = document_parts(normalized)

    def judge_part(item: int) -> Counts:
        frames, kept_bytes = [], 0
        for batch in text_batches(normalized, parts[item], batch_bytes=_BATCH_BYTES):
            found = pl.Series("reason", reasons(rules, batch["text"].to_list()), pl.String)
            frames.append(batch.select("id", keep=found.is_null(), reason=found))
            kept_bytes += int((batch["text"].str.len_bytes() * found.is_null()).sum())
        verdicts = pl.concat(frames) if frames else pl.DataFrame(schema=VERDICTS)
        write_part(workspace, attribute_path("verdicts", parts[item]), verdicts)
        return {
            "documents_in": len(verdicts),
            "documents": int(verdicts["keep"].sum()),
            "bytes": kept_bytes,
            "removed": reason_counts(verdicts["reason"]),
        }

    def finish(counts: Sequence[Sequence[Counts]]) -> Counts:
        summary = retention_summary(counts[0])
        log(
            f"quality/{source.name}: {summary['documents']:,} of {summary['documents_in']:,} documents kept "
            f"by rules {source.curation.rules!r}"
        )
        return summary

    return Stage((Phase("judge", len(parts), judge_part),), finish)


VERDICTS = {"id": pl.String, "keep": pl.Boolean, "reason": pl.String}


def reason_counts(reasons: pl.Series) -> dict[str, int]:
    """How often each reason is given, by reason."""
    names, counts = np.unique(reasons.drop_nulls().to_numpy(), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))
