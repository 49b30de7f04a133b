"""Curation: what is kept, what is removed by which stage, that no document is lost, what a reader can rely on."""

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.curate import curate_stage
from marin_core.data.documents import document_parts, read_documents, text_batches
from marin_core.data.stages import run_items, run_stage
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store
from tests.data.parts import commit_parts, documents, identity, read_folder, run_as_ranks, source

NORMALIZED = ArtifactSpec("normalized/test", "normalize", "1")
QUALITY = ArtifactSpec("quality/test", "quality", "1", {}, {"normalized": NORMALIZED})
DUPLICATES = ArtifactSpec("near_duplicates/test", "near", "1", {}, {"normalized": NORMALIZED})
CONTAMINATION = ArtifactSpec("contamination/test", "contamination", "1", {}, {"normalized": NORMALIZED})
CURATED = ArtifactSpec("curated/test", "curate", "1", {}, {"normalized": NORMALIZED, "quality": QUALITY})
KEPT, POOR, COPY, LEAK = "kept", "poor", "copy", "leak"
FATES = st.lists(st.sampled_from([KEPT, KEPT, POOR, COPY, LEAK]), min_size=1, max_size=40)
Change = Callable[[pl.DataFrame], pl.DataFrame]


@given(FATES, st.integers(1, 6))
@settings(deadline=None, max_examples=10)
def test_every_document_is_kept_or_removed_once(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str], parts: int
) -> None:
    texts = {f"text {number}": fate for number, fate in enumerate([*fates, KEPT])}
    artifact = curated(Store(str(tmp_path_factory.mktemp("store"))), texts, parts)
    kept, removed = read_folder(artifact, "documents"), read_folder(artifact, "removed")
    assert kept["text"].to_list() == [text for text in sorted(texts, key=identity) if texts[text] == KEPT]
    assert kept["id"].is_sorted() and removed["id"].is_sorted()
    assert dict(removed.select("id", "stage").iter_rows()) == {
        identity(text): STAGE_OF[fate] for text, fate in texts.items() if fate != KEPT
    }
    summary = artifact.record.summary
    assert (summary["documents_in"], summary["documents"]) == (len(texts), len(kept))
    assert summary["bytes"] == sum(len(text.encode()) for text in kept["text"])
    assert sum(summary["removed"].values()) == sum(summary["removed_by_stage"].values()) == len(removed)
    stages = summary["retention_by_stage"]
    assert stages["quality"] * stages["near_duplicates"] * stages["contamination"] == pytest.approx(
        summary["retention"]
    )


STAGE_OF = {POOR: "quality", COPY: "near_duplicates", LEAK: "contamination"}


def test_a_removed_document_says_why(tmp_path: Path) -> None:
    artifact = curated(Store(str(tmp_path)), {"a": KEPT, "b": POOR, "c": COPY, "d": LEAK})
    removed = {row.pop("id"): row for row in read_folder(artifact, "removed").to_dicts()}
    assert removed == {
        identity("b"): {"stage": "quality", "reason": "too_short", "detail": None},
        identity("c"): {"stage": "near_duplicates", "reason": "near_duplicate", "detail": "longest"},
        identity("d"): {"stage": "contamination", "reason": "exam", "detail": "item 7: 31 n-grams"},
    }
    assert artifact.record.summary["removed"] == {
        "contamination/exam": 1,
        "near_duplicates/near_duplicate": 1,
        "quality/too_short": 1,
    }


def test_columns_are_those_of_the_normalized_documents(tmp_path: Path) -> None:
    artifact = curated(Store(str(tmp_path)), {"a": KEPT, "b": POOR})
    assert read_folder(artifact, "documents").to_dicts() == [
        {"id": identity("a"), "text": "a", "source": "test", "licence": "MIT", "url": "https://a"}
    ]
    assert artifact.record.summary["licences"] == ["MIT"]


def test_small_parts_are_put_together_by_what_is_kept(tmp_path: Path) -> None:
    texts = {f"{number} {'x' * 1000}": KEPT if number % 4 == 0 else POOR for number in range(400)}
    artifact = curated(Store(str(tmp_path)), texts, parts=16, shard_bytes=25_000)
    sizes = [pl.read_parquet(artifact.read(path))["text"].str.len_bytes().sum() for path in document_parts(artifact)]
    assert len(sizes) == 4 and sum(sizes) == artifact.record.summary["bytes"]
    assert max(sizes) < 40_000
    assert [path.removeprefix("documents/") for path in document_parts(artifact)] == sorted(
        entry.path.removeprefix("removed/") for entry in artifact.record.files if entry.path.startswith("removed/")
    )


@pytest.mark.parametrize(
    ("spec", "change", "complaint"),
    [
        pytest.param(QUALITY, lambda f: f[1:], "1 of 10 documents have no row", id="no verdict"),
        pytest.param(QUALITY, lambda f: pl.concat([f, f[:1]]), "1 documents have several rows", id="two verdicts"),
        pytest.param(DUPLICATES, lambda f: f[:-2], "2 of 8 documents have no row", id="not looked at for duplicates"),
        pytest.param(
            CONTAMINATION, lambda f: f.with_columns(id=pl.lit("f" * 32)), "1 rows are of documents", id="unknown"
        ),
    ],
)
def test_rows_that_do_not_fit_are_a_one_line_error(
    tmp_path: Path, spec: ArtifactSpec, change: Change, complaint: str
) -> None:
    texts = {f"text {number}": fate for number, fate in enumerate([KEPT] * 6 + [POOR, POOR, COPY, LEAK])}
    with pytest.raises(MarinError, match=f"^{spec.name} .*{complaint}.*; materialize {spec.name} again$") as refused:
        curated(Store(str(tmp_path)), texts, changes={spec.name: change})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("spec", [QUALITY, DUPLICATES, CONTAMINATION])
def test_a_missing_attribute_file_is_an_error(tmp_path: Path, spec: ArtifactSpec) -> None:
    with pytest.raises(MarinError, match=rf"^{spec.name} .* has no \w+/part-00001-of-00002.parquet, which describes"):
        curated(Store(str(tmp_path)), {"a": KEPT, "b": KEPT}, parts=2, without=spec.name)


def test_documents_out_of_order_are_an_error(tmp_path: Path) -> None:
    texts = dict.fromkeys(map(str, range(10)), KEPT)
    with pytest.raises(MarinError, match=r"part-00000-of-00001\.parquet is not sorted by id"):
        curated(Store(str(tmp_path)), texts, changes={NORMALIZED.name: lambda frame: frame.reverse()})


def test_a_source_with_nothing_left_is_a_one_line_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(
        MarinError, match=r"'test' has no documents left after curation \(2 came in; removed"
    ) as refused:
        curated(store, {"a": POOR, "b": LEAK})
    assert "\n" not in str(refused.value)
    assert store.record(CURATED.name, CURATED.fingerprint) is None


@pytest.mark.parametrize("world", [2, 5])
def test_ranks_and_a_kill_in_between_change_no_byte(tmp_path: Path, world: int) -> None:
    texts = {f"{number} {'x' * 500}": [KEPT, POOR, KEPT, COPY, LEAK][number % 5] for number in range(200)}
    alone = curated(Store(str(tmp_path / "alone")), texts, 7, shard_bytes=10_000)
    ranks = curated(Store(str(tmp_path / "ranks")), texts, 7, shard_bytes=10_000, world=world)
    assert len(document_parts(alone)) > 3
    assert ranks.record.files == alone.record.files
    assert ranks.record.summary == alone.record.summary


def test_documents_are_read_in_order_in_bounded_batches(tmp_path: Path) -> None:
    texts = {f"{number} {'x' * (number * 10)}": KEPT for number in range(600)}
    artifact = curated(Store(str(tmp_path)), texts, parts=3, shard_bytes=500_000)
    assert len(document_parts(artifact)) == 3
    assert pl.concat(read_documents(artifact))["id"].to_list() == sorted(map(identity, texts))
    for path in document_parts(artifact):
        batches = list(text_batches(artifact, path, batch_bytes=20_000))
        assert len(batches) > 10
        assert all(len(batch) == 1 or batch["text"].str.len_bytes().sum() <= 20_000 for batch in batches)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data + b"x"])
def test_a_damaged_part_is_a_one_line_error_with_a_remedy(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    artifact = curated(Store(str(tmp_path)), {"a": KEPT})
    path = Path(artifact.path(document_parts(artifact)[0]))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        MarinError, match=r"^[^\n]*part-00000-of-00001.parquet is damaged[^\n]*materialize curated/test"
    ):
        list(read_documents(artifact))


def test_an_artifact_without_parts_is_a_one_line_error(tmp_path: Path) -> None:
    artifact = commit_parts(Store(str(tmp_path)), NORMALIZED, {"elsewhere": [documents(["a"])]})
    with pytest.raises(
        MarinError, match=r"^normalized/test \(\w+\) has no documents/part-\*\.parquet; delete the folder"
    ):
        document_parts(artifact)


def curated(
    store: Store,
    texts: Mapping[str, str],
    parts: int = 1,
    *,
    shard_bytes: int = 10**9,
    changes: Mapping[str, Change] | None = None,
    without: str | None = None,
    world: int | None = None,
) -> Artifact:
    """The curated artifact of texts with such fates. `changes` damages the last part of an input, `without` leaves it
    out; with `world`, the stage is run by so many ranks after a first attempt was killed."""
    fates = pl.DataFrame({"text": list(texts), "fate": list(texts.values())})
    frame = documents(list(texts)).join(fates, on="text", maintain_order="left")
    frame = frame.with_columns(url=pl.concat_str(pl.lit("https://"), "text").str.head(9))
    bounds = [len(frame) * part // parts for part in range(parts + 1)]
    fates_by_part = [frame[bounds[part] : bounds[part + 1]] for part in range(parts)]
    kept_bytes = int(frame.filter(fate=KEPT)["text"].str.len_bytes().sum())

    def commit(spec: ArtifactSpec, folder: str, make: Change) -> Artifact:
        frames = [make(each) for each in fates_by_part]
        frames[-1] = (changes or {}).get(spec.name, lambda frame: frame)(frames[-1])
        names = [f"part-{number:05d}-of-{parts:05d}.parquet" for number in range(parts)]
        present = dict(list(zip(names, frames, strict=True))[: parts - (without == spec.name)])
        return commit_parts(store, spec, {folder: present}, {"bytes": kept_bytes})

    poor, copied, leaked = (pl.col("fate") == fate for fate in (POOR, COPY, LEAK))
    reason = pl.when(poor).then(pl.lit("too_short"))
    match = {"evaluation": pl.lit("exam"), "item": pl.lit("item 7"), "overlap": pl.lit(0.7), "matched": pl.lit(31)}
    inputs = (
        commit(NORMALIZED, "documents", lambda f: f.drop("fate")),
        commit(QUALITY, "verdicts", lambda f: f.select("id", keep=~poor, reason=reason)),
        commit(
            DUPLICATES,
            "duplicates",
            lambda f: f.filter(~poor).select("id", cluster=pl.lit("longest"), duplicate=copied),
        ),
        commit(CONTAMINATION, "matches", lambda f: f.filter(leaked).select("id", **match)),
    )
    if world is not None:
        with store.writer(CURATED, resumable=True) as writer:
            run_items(
                curate_stage(source(), *inputs, writer, print, shard_bytes).phases[0], writer, rank=1, world=world
            )
    with store.writer(CURATED, resumable=True) as writer:
        stage = curate_stage(source(), *inputs, writer, print, shard_bytes)
        writer.commit(run_as_ranks(stage, writer, world) if world else run_stage(stage, writer))
    return store.artifact(CURATED)
