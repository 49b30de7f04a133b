"""The documents on which a model is scored: of a validation set the held-out ones, up to a number of bytes."""

from dataclasses import dataclass

import polars as pl

from marin_core.data.documents import document_parts, part_schema, read_documents
from marin_core.data.tokens.split import held_out
from marin_core.errors import MarinError
from marin_core.store import Artifact


@dataclass(frozen=True)
class ScoredText:
    """A document of a validation set, or the beginning of one."""

    set: str
    id: str
    text: str


def are_conversations(documents: Artifact) -> bool:
    """Whether a source's documents are conversations, of which training sees another text, their template's."""
    return "messages" in part_schema(documents, document_parts(documents)[0])


def validation_texts(name: str, documents: Artifact, share: float, max_bytes: int) -> list[ScoredText]:
    """The first `max_bytes` of UTF-8 of the held-out documents in order of id, the same whoever asks. What is left of
    the last document is cut at a character.

    Raises:
        MarinError: no document is held out, or the set has no text.
    """
    chosen: list[ScoredText] = []
    left = max_bytes
    for batch in read_documents(documents):
        ours = batch.filter(held_out(batch["id"], share))
        for id_, text in ours.select("id", "text").iter_rows():
            kept = first_bytes(text, left)
            if kept:
                chosen.append(ScoredText(name, id_, kept))
            left -= len(kept.encode())
            if kept != text or not left:
                return chosen
        # Held out are the lowest ids, and documents are in the order of their ids.
        if len(ours) < len(batch):
            break
    if not chosen:
        raise MarinError(
            f"validation set {name}: none of the documents of {documents.record.name} is among the lowest {share:g} of "
            f"ids; give the source more documents or raise validation_share in the profile"
        )
    return chosen


def text_of(documents: Artifact, ids: pl.Series) -> dict[str, str]:
    """Texts of some documents by id. Those that the artifact does not have are left out."""
    wanted = ids.implode()
    found: dict[str, str] = {}
    for batch in read_documents(documents):
        found |= dict(batch.filter(pl.col("id").is_in(wanted)).select("id", "text").iter_rows())
        if len(found) == len(ids):
            break
    return found


def first_bytes(text: str, limit: int) -> str:
    """The longest beginning of a text with at most so many bytes of UTF-8."""
    return text.encode()[: max(0, limit)].decode(errors="ignore")
