"""The corpus as the stages' inputs: documents of the length of web pages, and sets with planted near-duplicates.

Written as committed artifacts of a store, in the documented layouts, without any of the stages that are measured.
"""

import hashlib
import io
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import xxhash

from marin_core.store import Artifact, ArtifactSpec, Store

CUT_AT, REST_AT_LEAST = 4000, 300
EDITS = {"0.5 %": 0.005, "2 %": 0.02, "5 %": 0.05, "10 %": 0.1}
CUT_OFF = "cut off"
KINDS = (*EDITS, CUT_OFF)
PLANTED = 3000
PLANTED_WORDS_AT_LEAST = 120
EXACT_COPIES_SHARE = 0.05
RAW_FILES = 8


@dataclass(frozen=True)
class Set:
    """One set of documents in the store: `normalized/<name>` and `curated/<name>` with the same documents, and
    `quality/<name>` that keeps all of them."""

    store: str
    name: str

    def spec(self, stage: str) -> ArtifactSpec:
        return ArtifactSpec(f"{stage}/{self.name}", "benchmark", "1")

    def artifact(self, stage: str) -> Artifact:
        return Store(self.store).artifact(self.spec(stage))

    def files(self, stage: str) -> list[str]:
        """Paths of the Parquet files of an artifact."""
        artifact = self.artifact(stage)
        return [artifact.path(f.path) for f in artifact.record.files if f.path.endswith(".parquet")]

    def size(self, stage: str) -> tuple[float, int]:
        """(MB of text, documents) of `raw` or `normalized`."""
        summary = self.artifact(stage).record.summary
        return summary["bytes"] / 1e6, summary["documents"]


def write_sets(corpus: Path, store: str, slice_mb: dict[str, float]) -> None:
    """Commit `raw/documents` with exact copies, the set `documents`, sets `planted` and `dense` with near-duplicates,
    and each first slice of `documents` that `slice_mb` names."""
    documents = [row for kind in ("web", "code", "math") for row in pieces(pl.read_parquet(corpus / f"{kind}.parquet"))]
    frame = described(pl.DataFrame(documents, schema=["source_id", "text", "source"], orient="row"))
    frame = frame.unique("id", keep="first", maintain_order=True)
    write_raw(frame, Set(store, "documents"))
    write_set(frame, Set(store, "documents"), parts=4)
    # In another order than that of ids, by which documents are held out.
    shuffled = frame.sort(pl.col("id").str.reverse())
    for name, megabytes in slice_mb.items():
        part = first(shuffled, megabytes)
        write_set(part, Set(store, name), parts=2)
        write_raw(part, Set(store, name))
    copies, originals = planted(frame)
    pairs = pl.concat([copies.drop("of", "kind"), originals])
    rest = shuffled.join(originals, on="id", how="anti", maintain_order="left")
    write_set(pl.concat([pairs, first(rest, 12)]), Set(store, "planted"), parts=2)
    few = copies.group_by("kind", maintain_order=True).head(PLANTED // len(KINDS) // 3)
    pairs = pl.concat([few.drop("of", "kind"), originals.join(few, left_on="id", right_on="of", how="semi")])
    write_set(pairs, Set(store, "dense"), parts=2)
    copies.select("id", "of", "kind").write_parquet(Path(store, "truth.parquet"))


def pieces(corpus: pl.DataFrame) -> Iterator[tuple[str, str, str]]:
    """(id, text, kind) of the documents, cut at blank lines."""
    for row in corpus.iter_rows(named=True):
        texts, paragraphs, length = [], [], 0
        for paragraph in re.split(r"(?<=\n)\n+", row["text"]):
            paragraphs.append(paragraph)
            length += len(paragraph)
            if length > CUT_AT:
                texts.append("\n".join(paragraphs))
                paragraphs, length = [], 0
        if length > REST_AT_LEAST or not texts:
            texts.append("\n".join(paragraphs))
        yield from ((f"{row['id']}-{k}", text, row["source"]) for k, text in enumerate(texts))


def described(frame: pl.DataFrame) -> pl.DataFrame:
    """With the columns of normalized documents, without documents that are blank."""
    # What normalization does to every document, so that the same text has the same id before and after.
    text = pl.col("text").str.replace_all(r"\r+\n", "\n").str.strip_chars().str.replace_all(r"(\s{128})\s+", "$1")
    frame = frame.with_columns(text=text).filter(pl.col("text") != "")
    ids = [xxhash.xxh3_128_hexdigest(text.encode()) for text in frame["text"]]
    columns = ["id", "text", "source", "licence", "source_id"]
    return frame.with_columns(id=pl.Series(ids, dtype=pl.String), licence=pl.lit("various")).select(columns)


def planted(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(near-duplicates with the id they are `of` and their kind, the originals)."""
    chance = random.Random(7)
    frame = frame.sort("id")
    long_enough = frame.filter(pl.col("text").str.count_matches(r"\S+") > PLANTED_WORDS_AT_LEAST)
    originals = long_enough[sorted(chance.sample(range(len(long_enough)), min(PLANTED, len(long_enough))))]
    vocabulary = [word for text in frame.sample(500, seed=7)["text"] for word in text.split()]
    copies = []
    for number, original in enumerate(originals.iter_rows(named=True)):
        kind = KINDS[number % len(KINDS)]
        text = edited(original["text"], kind, vocabulary, chance)
        row = {**original, "text": text.strip(), "of": original["id"], "kind": kind, "source_id": f"planted-{number}"}
        copies.append({**row, "id": xxhash.xxh3_128_hexdigest(row["text"].encode())})
    return pl.DataFrame(copies).unique("id", keep="first", maintain_order=True), originals


def edited(text: str, kind: str, vocabulary: list[str], chance: random.Random) -> str:
    """The text with a share of its words replaced, at least one, or its last tenth cut off."""
    if kind == CUT_OFF:
        return text[: int(len(text) * 0.9)]
    rate = EDITS[kind]
    new = re.sub(r"\S+", lambda word: chance.choice(vocabulary) if chance.random() < rate else word[0], text)
    return new if new != text else f"{text} {chance.choice(vocabulary)}"


def first(frame: pl.DataFrame, megabytes: float) -> pl.DataFrame:
    return frame.filter(pl.col("text").str.len_bytes().cum_sum() <= megabytes * 1e6)


def write_raw(frame: pl.DataFrame, to: Set) -> None:
    """`raw/…`: Parquet files in no order, a share of the documents twice."""
    copies = frame.sample(fraction=EXACT_COPIES_SHARE, seed=1).with_columns(source_id=pl.lit("copy-") + "source_id")
    write_raw_files(pl.concat([frame, copies]).select("source_id", "text", "source"), to)


def write_raw_files(rows: pl.DataFrame, to: Set) -> None:
    rows = rows.sort(pl.col("source_id").str.reverse())
    manifest = []
    with Store(to.store).writer(to.spec("raw")) as writer:
        for number in range(RAW_FILES):
            path = f"files/{number:03d}.parquet"
            data = parquet(rows.gather_every(RAW_FILES, number), row_group_size=1024)
            with writer.open(path) as file:
                file.write(data)
            entry = {"path": path, "origin": None, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            manifest.append(entry)
        writer.write_json("manifest.json", {"revision": None, "files": manifest})
        writer.commit({"bytes": int(rows["text"].str.len_bytes().sum()), "documents": len(rows)})


def write_fourfold(documents: Set) -> None:
    """`raw/fourfold`, unless it is there: the documents, and three more of each with its words in another order, so
    that all are different texts of the same words."""
    to = Set(documents.store, "fourfold")
    if Store(to.store).current(to.spec("raw")) is not None:
        return
    frame = pl.concat([pl.read_parquet(file) for file in documents.files("raw")])
    chance = np.random.default_rng(11)

    def shuffled(text: str) -> str:
        words = np.array(text.split(" "), dtype=object)
        return " ".join(words[chance.permutation(len(words))])

    copies = [
        frame.with_columns(
            text=pl.Series([shuffled(text) for text in frame["text"]]),
            source_id=pl.lit(f"{number}-") + pl.col("source_id"),
        )
        for number in range(3)
    ]
    write_raw_files(pl.concat([frame, *copies]), to)


def write_set(frame: pl.DataFrame, to: Set, parts: int) -> None:
    frame = frame.unique("id").sort("id")
    summary = {"bytes": int(frame["text"].str.len_bytes().sum()), "documents": len(frame)}
    tables = {"normalized": ("documents", frame), "curated": ("documents", frame)}
    verdicts = frame.select("id", keep=pl.lit(True), reason=pl.lit(None, pl.String))
    for stage, (folder, table) in {**tables, "quality": ("verdicts", verdicts)}.items():
        with Store(to.store).writer(to.spec(stage)) as writer:
            rows = -(-len(table) // parts)
            for part in range(parts):
                with writer.open(f"{folder}/part-{part:05d}-of-{parts:05d}.parquet") as file:
                    file.write(parquet(table[part * rows : (part + 1) * rows], row_group_size=4096))
            writer.commit(summary)


def parquet(frame: pl.DataFrame, row_group_size: int) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=3, row_group_size=row_group_size)
    return buffer.getvalue()
