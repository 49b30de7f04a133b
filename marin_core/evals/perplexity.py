"""Perplexity of a checkpoint on validation sets, per set, in nats per token and bits per byte.

What is counted: every byte of the scored documents, and every token of theirs, each once. The first token of a document
is predicted from the token that begins it in training, BOS, or where the vocabulary has none the EOS of the document
before; the EOS that ends a document is not counted. A long document is cut into windows of the plan's sequence length,
as training cuts it, and a token is predicted from those before it in its window. Bits per byte divide by the bytes of
UTF-8, so that models with different tokenizers can be compared; nats per token cannot be.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from marin_core.data.tokens.tokenizer import TokenizerFiles
from marin_core.errors import MarinError
from marin_core.evals.alignment import AligningTokenizer, ByteLosses, byte_losses
from marin_core.evals.averages import Averages
from marin_core.evals.documents import ScoredText
from marin_core.evals.result import Metric
from marin_core.evals.scoring import Speed, token_losses
from marin_core.store import Artifact, Workspace

if TYPE_CHECKING:
    from marin_core.training.model import TrainedModel

DOCUMENTS = "documents.parquet"
# The version of what is measured, as a task has one: raise it when the numbers mean something else.
VERSION = "1"
BITS = 1 / math.log(2)
_SCHEMA = pl.Schema(
    {
        "set": pl.String,
        "id": pl.String,
        "bytes": pl.Int64,
        "tokens": pl.Int64,
        "nats": pl.Float64,
        "ends": pl.List(pl.Int32),
        "losses": pl.List(pl.Float32),
    }
)


class LossNotFinite(MarinError):
    """The model gives some token no probability, or none at all."""


@dataclass(frozen=True)
class DocumentScores:
    """A table of scored documents with the columns `set`, `id`, `bytes`, `tokens`, `nats` (their sum over the tokens),
    and where in the document the nats are: `ends` and `losses`, the fields of `ByteLosses`."""

    table: pl.DataFrame

    @classmethod
    def read(cls, evaluation: Artifact) -> Self:
        """Those of a committed `evals/…/perplexity`."""
        return cls(pl.read_parquet(evaluation.read(DOCUMENTS)))

    def write(self, workspace: Workspace) -> None:
        with workspace.open(DOCUMENTS) as file:
            self.table.write_parquet(file, compression="zstd", compression_level=3)

    def sets(self) -> dict[str, pl.DataFrame]:
        return {str(name): rows for (name,), rows in self.table.group_by("set", maintain_order=True)}

    def metrics(self) -> dict[str, Metric]:
        """`<set>/bits_per_byte`, `<set>/nats_per_token`, and the same of `macro` and `micro`."""
        sets = self.sets()
        nats = {name: rows["nats"].to_numpy() for name, rows in sets.items()}
        found: dict[str, Metric] = {}
        for unit, column, factor in (("bits_per_byte", "bytes", BITS), ("nats_per_token", "tokens", 1.0)):
            sizes = {name: rows[column].to_numpy() for name, rows in sets.items()}
            for name, average in Averages.of(nats, sizes).named().items():
                scaled = average.scaled(factor)
                found[f"{name}/{unit}"] = Metric(scaled.value, scaled.stderr, unit.replace("_", " "), False)
        return found

    def sizes(self) -> dict[str, dict[str, Any]]:
        """Of each set how many `documents`, `tokens` and `bytes` were scored, and their `nats`."""
        return {
            name: {"documents": len(rows), **{each: rows[each].sum() for each in ("tokens", "bytes", "nats")}}
            for name, rows in self.sets().items()
        }


def score_documents(
    trained: "TrainedModel",
    files: TokenizerFiles,
    framing: str,
    texts: Sequence[ScoredText],
    check: Callable[[], None] = lambda: None,
) -> tuple[DocumentScores, Speed]:
    """Score texts with a model, and tell how fast.

    Raises:
        LossNotFinite: the loss of a token is not a number, or infinite.
    """
    tokenized = AligningTokenizer(files, framing).tokenize([each.text for each in texts])
    head = files.eos_id if files.bos_id is None else files.bos_id
    losses, speed = token_losses(trained, head, [each.ids for each in tokenized], check)
    for text, found in zip(texts, losses, strict=True):
        if not np.isfinite(found).all():
            raise LossNotFinite(
                f"{int((~np.isfinite(found)).sum())} of {len(found)} tokens of document {text.id} in validation set "
                f"{text.set} have no finite loss; the checkpoint holds numbers that are none"
            )
    rows = [
        _row(text, len(each.ids), byte_losses(each, found))
        for text, each, found in zip(texts, tokenized, losses, strict=True)
    ]
    return DocumentScores(pl.DataFrame(rows, schema=_SCHEMA)), speed


def aligned_losses(row: Mapping[str, Any]) -> ByteLosses:
    """The losses by byte of a row of the table."""
    return ByteLosses(np.asarray(row["ends"], np.int32), np.asarray(row["losses"], np.float32))


def _row(text: ScoredText, tokens: int, losses: ByteLosses) -> dict[str, Any]:
    return {
        "set": text.set,
        "id": text.id,
        "bytes": int(losses.ends[-1]),
        "tokens": tokens,
        "nats": float(losses.nats.sum(dtype=np.float64)),
        "ends": losses.ends.tolist(),
        "losses": losses.nats.tolist(),
    }
