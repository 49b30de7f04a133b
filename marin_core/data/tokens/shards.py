"""Tokenized shards: curated documents as the token caches that training reads, one per split.

A part of the curated documents becomes a part of each cache, and `index/<split>/` says which document each row is.
How text becomes ids is in `encoder.py` and `chat.py`, how caches lie on the disk in `cache.py`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, get_args

import polars as pl
import pyarrow as pa

from marin_core.data.documents import document_parts, text_batches
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Counts, Phase, Stage, total
from marin_core.data.tokens.cache import LEDGER, CacheReader, Part, write_ledger
from marin_core.data.tokens.chat import ChatEncoder
from marin_core.data.tokens.encoder import Encoder, ReferenceEncoder, Rows, load_encoder, load_reference, text_rows
from marin_core.data.tokens.judge import Sample, judge, row_digest
from marin_core.data.tokens.split import SUFFIX, SplitWriter, held_out
from marin_core.data.tokens.tokenizer import TokenizerFiles, read_tokenizer
from marin_core.errors import MarinError
from marin_core.store import Artifact, Workspace

# `document`: BOS, the text, EOS. `levanter`: the same with the blank that Levanter's own tokenization puts before EOS.
Framing = Literal["document", "levanter"]
_SPLITS = ("train", "validation")


def tokenize_stage(
    source: Source,
    curated: Artifact,
    tokenizer: Artifact,
    validation_share: float,
    framing: Framing,
    workspace: Workspace,
    log: Callable[[str], None],
) -> Stage:
    """Stage that writes `train/` and `validation/`, each a cache of `input_ids`, and of `assistant_masks` for
    conversations; and `index/<split>/part-*.parquet` (id, part, row, tokens, start): the document of each row, where it
    is in the curated files, its tokens, and the position of the first among the tokens of the split's part.

    A document is held out for validation when its id, a uniform hash of its text, falls in the lowest
    `validation_share`: the split needs no state and no document can be in both. An evaluation source is all validation.

    Raises:
        MarinError: a split is empty, ids differ from the reference tokenizer's, or the shards do not read back.
    """
    if framing not in get_args(Framing):
        raise MarinError(f"framing is {framing!r}; set it to one of {', '.join(get_args(Framing))} in the profile")
    tokenization = _Tokenization(source, curated, tokenizer, validation_share, framing, workspace, log)
    parts = len(tokenization.parts)
    phases = (Phase("encode", parts, tokenization.encode), Phase("verify", parts, tokenization.verify))
    return Stage(phases, tokenization.finish)


def check_tokenizer(tokenized: Artifact, tokenizer: Artifact) -> None:
    """Raises MarinError unless every cache was made with this very tokenizer."""
    made_with = tokenized.record.summary["tokenizer"]
    conversations = "chat_template" in made_with
    expected = read_tokenizer(tokenizer).identity(made_with["framing"], conversations=conversations)
    paths = {entry.path for entry in tokenized.record.files}
    ledgers = [tokenized.read_json(f"{split}/{LEDGER}") for split in _SPLITS if f"{split}/{LEDGER}" in paths]
    found = [made_with, *(ledger["metadata"]["preprocessor_metadata"] for ledger in ledgers)]
    for identity in found:
        if differing := [key for key in expected if identity.get(key) != expected[key]]:
            key = differing[0]
            raise MarinError(
                f"{tokenized.record.name} was tokenized with {key} {_short(identity.get(key))}, but "
                f"{tokenizer.record.name} has {_short(expected[key])}; materialize {tokenized.record.name} again"
            )


class _Tokenization:
    def __init__(
        self,
        source: Source,
        curated: Artifact,
        tokenizer: Artifact,
        validation_share: float,
        framing: Framing,
        workspace: Workspace,
        log: Callable[[str], None],
    ):
        self._source, self._curated, self._tokenizer = source, curated, tokenizer
        self._share, self._framing, self._workspace, self._log = validation_share, framing, workspace, log
        self.parts = document_parts(curated)
        self._chat = source.layout.messages_field is not None
        self._fields = ("input_ids", "assistant_masks") if self._chat else ("input_ids",)
        self._column = "messages" if self._chat else "text"
        self._splits = ("validation",) if source.role == "evaluation" else _SPLITS

    @cached_property
    def _files(self) -> TokenizerFiles:
        return read_tokenizer(self._tokenizer)

    @cached_property
    def _identity(self) -> Counts:
        return self._files.identity(self._framing, conversations=self._chat)

    @cached_property
    def _reference(self) -> ReferenceEncoder:
        return load_reference(self._files)

    @cached_property
    def _encoder(self) -> Encoder:
        return load_encoder(self._files, self._log)

    @cached_property
    def _chat_encoder(self) -> ChatEncoder:
        return ChatEncoder(self._tokenizer.record.name, self._files)

    def encode(self, item: int) -> Counts:
        path = self.parts[item]
        writers = {split: SplitWriter(self._workspace, split, path, self._fields) for split in self._splits}
        sample = Sample(self._column, list(self._files.special))
        read = 0
        text_bytes: dict[str, int] = dict.fromkeys(self._splits, 0)
        for batch in text_batches(self._curated, path, ("id", self._column)):
            self._workspace.check()
            numbered = batch.with_row_index("row", offset=read)
            read += len(batch)
            for split, documents in self._divided(numbered):
                documents, rows = self._rows(documents)
                text_bytes[split] += int(documents[self._column].str.len_bytes().sum())
                sample.offer(split, writers[split].documents, documents, rows)
                writers[split].append(documents, rows)
        judged = sample.documents()
        if not self._chat:
            judge(f"tokenized/{self._source.name}, {path}", judged, self._text_rows, self._reference_rows)
        written = {split: writer.close(self._identity) for split, writer in writers.items()}
        with self._workspace.open_work(_sample_file(path)) as file:
            file.write(json.dumps([[each.split, each.row, each.digest] for each in judged]).encode())
        counts = _counts(written)
        tokens, documents = (sum(each[unit] for each in counts.values()) for unit in ("tokens", "documents"))
        self._log(f"tokenized/{self._source.name}: {path}: {tokens:,} tokens, {documents:,} documents")
        return {**counts, "bytes": text_bytes, "left_out": read - documents, "judged": len(judged)}

    def verify(self, item: int) -> Counts:
        """Read a part back from its files, as another process finds them."""
        path = self.parts[item]
        name = PurePosixPath(path).stem
        folders = {split: self._workspace.path(split, name) for split in self._splits}
        readers = {split: CacheReader(self._workspace.fs, url, self._fields) for split, url in folders.items()}
        with self._workspace.open_work(_sample_file(path), "rb") as file:
            sample = json.load(file)
        for split, row, digest in sample:
            reader = readers[split]
            if row >= reader.part.rows or row_digest({f: reader.row(f, row) for f in self._fields}) != digest:
                raise MarinError(
                    f"{folders[split]}: row {row} does not read back as it was written; check the disk and build the "
                    f"shards again"
                )
        return _counts({split: reader.part for split, reader in readers.items()})

    def finish(self, counts: Sequence[Sequence[Counts]]) -> Counts:
        encoded, read_back = counts
        for path, written, found in zip(self.parts, encoded, read_back, strict=True):
            if wrong := [split for split in self._splits if written[split] != found[split]]:
                split = wrong[0]
                raise MarinError(
                    f"tokenized/{self._source.name}, {split} of {path}: {found[split]} read back, {written[split]} "
                    f"written; check the disk and build the shards again"
                )
        summed = total(encoded)
        summary: Counts = {f"{split}_{unit}": 0 for split in _SPLITS for unit in ("documents", "tokens", "bytes")}
        for split in self._splits:
            self._check_split(split, summed)
            parts = {
                PurePosixPath(path).stem: Part(
                    each[split]["documents"], dict.fromkeys(self._fields, each[split]["tokens"])
                )
                for path, each in zip(self.parts, read_back, strict=True)
            }
            write_ledger(self._workspace, split, parts, self._identity)
            summary |= {f"{split}_{unit}": value for unit, value in summed[split].items()}
            summary[f"{split}_bytes"] = summed["bytes"][split]
        tokens = summary["train_tokens"] + summary["validation_tokens"]
        return {
            **summary,
            "bytes_per_token": round(sum(summed["bytes"].values()) / tokens, 3),
            "documents_left_out": summed["left_out"],
            "documents_judged": summed["judged"],
            "tokenizer": self._identity,
        }

    def _check_split(self, split: str, summed: Counts) -> None:
        if not summed[split]["documents"]:
            documents = sum(summed[each]["documents"] for each in self._splits)
            raise MarinError(
                f"tokenized/{self._source.name}: no document falls into the {split} split ({documents} documents, "
                f"validation share {self._share}); give the source more documents or change the share"
            )

    def _divided(self, documents: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """The documents of each split, where there are any."""
        if self._source.role == "evaluation":
            yield "validation", documents
            return
        validation = held_out(documents["id"], self._share)
        for split, chosen in (("train", ~validation), ("validation", validation)):
            if chosen.any():
                yield split, documents if chosen.all() else documents.filter(chosen)

    def _rows(self, documents: pl.DataFrame) -> tuple[pl.DataFrame, Rows]:
        """Documents that give a row, and their rows."""
        if not self._chat:
            return documents, self._text_rows(documents["text"])
        rows = self._chat_encoder.rows(documents["id"].to_list(), documents["messages"].to_list())
        spoken = rows.lengths > 0
        return documents.filter(pl.Series(spoken)), Rows(rows.lengths[spoken], rows.values)

    def _text_rows(self, texts: pl.Series, encoder: Encoder | None = None) -> Rows:
        arrow = texts.to_arrow().cast(pa.large_string())
        suffix = SUFFIX[self._framing]
        return text_rows(arrow, encoder or self._encoder, self._files.bos_id, self._files.eos_id, suffix)

    def _reference_rows(self, texts: pl.Series) -> Rows:
        return self._text_rows(texts, self._reference)


def _counts(parts: Mapping[str, Part]) -> Counts:
    return {split: {"documents": part.rows, "tokens": part.values["input_ids"]} for split, part in parts.items()}


def _sample_file(path: str) -> str:
    return f"sample/{PurePosixPath(path).stem}.json"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
