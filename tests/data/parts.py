"""Committed artifacts made of a few rows, for the tests of stages that read other stages' files."""

import itertools
from collections.abc import Mapping, Sequence

import polars as pl
import xxhash

from marin_core.data.documents import write_part
from marin_core.data.sources.declaration import Curation, FolderOrigin, Layout, Source
from marin_core.data.stages import Counts, Phase, Stage, run_items, run_stage
from marin_core.store import Artifact, ArtifactSpec, Store, Workspace


def source(name: str = "test", **curation: object) -> Source:
    return Source(name, FolderOrigin("nowhere"), "MIT", Layout("jsonl"), Curation(**curation))  # pyright: ignore


def identity(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())


def documents(texts: Sequence[str], name: str = "test") -> pl.DataFrame:
    """Normalized documents of some texts, sorted by id."""
    rows = [{"id": identity(text), "text": text, "source": name, "licence": "MIT"} for text in set(texts)]
    schema = {"id": pl.String, "text": pl.String, "source": pl.String, "licence": pl.String}
    return pl.DataFrame(rows, schema=schema).sort("id")


def commit_parts(
    store: Store,
    spec: ArtifactSpec,
    folders: Mapping[str, Sequence[pl.DataFrame] | Mapping[str, pl.DataFrame]],
    summary: Mapping[str, object] | None = None,
) -> Artifact:
    """An artifact whose folders hold these frames as parts, numbered if they have no names."""
    with store.writer(spec) as writer:
        for folder, frames in folders.items():
            if not isinstance(frames, Mapping):
                frames = {f"part-{n:05d}-of-{len(frames):05d}.parquet": frame for n, frame in enumerate(frames)}
            for name, frame in frames.items():
                write_part(writer, f"{folder}/{name}", frame)
        writer.commit(summary or {})
    return store.artifact(spec)


def commit_documents(
    store: Store, texts: Sequence[str], parts: int = 1, spec: ArtifactSpec | None = None, name: str = "test"
) -> Artifact:
    """A normalized artifact of some texts in so many parts."""
    frame = documents(texts, name)
    bounds = [len(frame) * part // parts for part in range(parts + 1)]
    frames = [frame[begin:end] for begin, end in itertools.pairwise(bounds)]
    return commit_parts(store, spec or ArtifactSpec(f"normalized/{name}", "normalize", "1"), {"documents": frames})


def read_folder(artifact: Artifact, folder: str) -> pl.DataFrame:
    """Every part of a folder, one after the other."""
    paths = sorted(entry.path for entry in artifact.record.files if entry.path.startswith(f"{folder}/"))
    return pl.concat([pl.read_parquet(artifact.read(path)) for path in paths])


def run_as_ranks(stage: Stage, workspace: Workspace, world: int) -> Counts:
    """Run a stage as so many ranks would, the last one first."""

    def run_phase(phase: Phase) -> None:
        for rank in reversed(range(world)):
            run_items(phase, workspace, rank=rank, world=world)

    return run_stage(stage, workspace, run_phase)
