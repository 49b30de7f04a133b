"""Near-duplicates of a source: what is removed and what survives, and equal bytes whoever runs the items."""

import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from marin_core.data.documents import write_part
from marin_core.data.near_duplicates import plan as near_duplicate_plan
from marin_core.data.near_duplicates.config import WORD_SHINGLES, MinHashConfig
from marin_core.data.near_duplicates.stage import near_duplicates_stage
from marin_core.data.stages import Counts, Stage, run_stage
from marin_core.errors import MarinError
from marin_core.store import ArtifactRecord, ArtifactSpec, Store, Workspace
from tests.data.parts import documents, identity, read_folder, run_as_ranks, source

NORMALIZED = ArtifactSpec("normalized/test", "normalize", "1")
QUALITY = ArtifactSpec("quality/test", "judge_quality", "1", {}, {"normalized": NORMALIZED})
NEAR = ArtifactSpec("near_duplicates/test", "find", "1", {}, {"normalized": NORMALIZED, "quality": QUALITY})
Run = Callable[[Stage, Workspace], Counts]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def planted() -> dict[str, list[tuple[str, str]]]:
    """Pairs of an original and its near copy, by the share of the words that is replaced."""
    rng = random.Random(0)
    pairs: dict[str, list[tuple[str, str]]] = {}
    for rate in (0.005, 0.02, 0.05, 0.1, 1.0):
        originals = [prose(rng, rng.randrange(200, 500)) for _ in range(60)]
        pairs[f"{rate}"] = [(original, edited(rng, original, rate)) for original in originals]
    return pairs


def test_planted_copies_are_removed_and_nothing_else(store: Store, planted: dict[str, list[tuple[str, str]]]) -> None:
    frame, record = found(store, [text for pairs in planted.values() for pair in pairs for text in pair], parts=3)
    removed = set(frame.filter("duplicate")["id"])
    recall = {
        rate: np.mean([bool({identity(one), identity(copy)} & removed) for one, copy in pairs])
        for rate, pairs in planted.items()
    }
    assert recall["0.005"] == 1
    assert recall["0.02"] >= 0.97
    assert recall["0.05"] >= 0.8
    assert recall["0.1"] >= 0.3
    assert recall["1.0"] == 0
    copies = {frozenset(map(identity, pair)) for pairs in planted.values() for pair in pairs}
    kept = frame.filter(~pl.col("duplicate") & pl.col("cluster").is_not_null())
    assert set(frame.filter("duplicate")["cluster"]) <= set(kept["id"])
    assert all(frozenset(row) in copies for row in frame.filter("duplicate").select("id", "cluster").rows())
    assert record.summary["verified"] == record.summary["duplicates"] == len(removed)
    assert frame.filter("duplicate")["containment"].min() >= 0.75  # pyright: ignore


def test_every_document_that_quality_kept_has_a_row(store: Store) -> None:
    texts = [prose(random.Random(number), 60) for number in range(50)]
    dropped = texts[::7]
    frame, record = found(store, texts, parts=4, dropped=dropped)
    assert frame["id"].to_list() == sorted(map(identity, set(texts) - set(dropped)))
    assert not frame["duplicate"].any()
    assert frame["cluster"].is_null().all()
    assert record.summary["documents_in"] == record.summary["documents"] == 50 - len(dropped)
    assert record.summary["retention"] == 1
    assert [entry.path for entry in record.files] == [f"duplicates/part-{n:05d}-of-00004.parquet" for n in range(4)]


def test_the_longest_stays_and_names_the_cluster(store: Store) -> None:
    text = prose(random.Random(0), 300)
    longest = f"{text} and the end"
    frame, record = found(store, [text, longest, text.upper(), f"{text} end"])
    assert frame.filter(~pl.col("duplicate"))["id"].to_list() == [identity(longest)]
    assert set(frame["cluster"]) == {identity(longest)}
    assert record.summary["clusters"] == 1
    assert record.summary["largest_cluster"] == 4
    assert record.summary["bytes"] == len(longest)


def test_of_equally_long_documents_the_lowest_id_stays(store: Store) -> None:
    text = prose(random.Random(0), 300)
    texts = [text, text.upper(), text.title()]
    frame, _ = found(store, texts, parts=3)
    assert frame["duplicate"].to_list() == [False, True, True]


def test_a_document_that_quality_dropped_removes_nothing(store: Store) -> None:
    text = prose(random.Random(0), 300)
    frame, _ = found(store, [text, f"{text} and more"], dropped=[f"{text} and more"])
    assert frame.rows() == [(identity(text), None, False, None)]


def test_rows_of_a_template_survive(store: Store) -> None:
    _, record = found(store, function_calls(2000))
    assert record.summary["largest_cluster"] > 100
    assert record.summary["retention"] >= 0.95


def test_copies_under_the_boilerplate_of_web_pages_are_removed(store: Store) -> None:
    rng = random.Random(0)
    header, footer = prose(rng, 250), prose(rng, 250)
    bodies = [prose(rng, 150) for _ in range(300)]
    copies = [edited(rng, body, 0.03) for body in bodies[:60]]
    frame, _ = found(store, [f"{header}\n{body}\n{footer}" for body in bodies + copies])
    removed = set(frame.filter("duplicate")["id"])
    of_copies = {identity(f"{header}\n{body}\n{footer}") for body in bodies[:60] + copies}
    assert len(removed) >= 55
    assert removed <= of_copies


def test_an_exempt_source_keeps_every_document(store: Store) -> None:
    text = prose(random.Random(0), 300)
    frame, record = found(store, [text, text.upper(), "other"], near_duplicates=False)
    assert not frame["duplicate"].any()
    assert frame["cluster"].is_null().all()
    assert record.summary["retention"] == 1
    assert record.summary["bytes"] == 2 * len(text) + 5


@pytest.mark.parametrize("texts", [[], ["one"], [" a ", "."]])
def test_few_documents_without_n_grams(store: Store, texts: list[str]) -> None:
    frame, _ = found(store, texts, dropped=texts[:1])
    assert len(frame) == max(0, len(texts) - 1)


def test_words_can_be_sketched_instead_of_characters(store: Store, planted: dict[str, list[tuple[str, str]]]) -> None:
    _, record = found(store, [text for pair in planted["0.005"] for text in pair], config=WORD_SHINGLES)
    assert record.summary["duplicates"] == 60


@pytest.mark.parametrize("world", [1, 2, 5])
def test_the_bytes_do_not_depend_on_the_number_of_ranks(
    world: int, tmp_path: Path, planted: dict[str, list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small enough that there is more than one of everything.
    monkeypatch.setattr(near_duplicate_plan, "_PARTITION_HASHES", 3000)
    monkeypatch.setattr(near_duplicate_plan, "_GROUP_BYTES", 300_000)
    texts = [text for pairs in planted.values() for pair in pairs for text in pair]
    _, ranks = found(
        Store(str(tmp_path / "ranks")), texts, parts=4, run=lambda stage, space: run_as_ranks(stage, space, world)
    )
    assert ranks.summary["partitions"] > 2
    monkeypatch.undo()
    _, one = found(Store(str(tmp_path / "one")), texts, parts=4)
    assert ranks.files == one.files


def test_a_killed_run_is_resumed_to_the_same_bytes(tmp_path: Path, planted: dict[str, list[tuple[str, str]]]) -> None:
    texts = [text for pairs in planted.values() for pair in pairs for text in pair]
    _, expected = found(Store(str(tmp_path / "whole")), texts, parts=6)
    store = Store(str(tmp_path / "killed"))
    commit_inputs(store, texts, parts=6)
    work = Path(f"{store.url(NEAR)}/.work")
    for phase in ("sign", "gather"):
        kill_when_begun(store, work / "done" / phase)
        assert store.record(NEAR.name, NEAR.fingerprint) is None
    assert build(store).files == expected.files


def test_verdicts_on_other_documents_are_a_one_line_error(store: Store) -> None:
    texts = [prose(random.Random(number), 60) for number in range(9)]
    commit_inputs(store, texts[:8], judged=texts[1:])
    with pytest.raises(MarinError, match=r"^quality/test has verdicts on other documents than [^\n]*again$"):
        build(store)


def prose(rng: random.Random, count: int) -> str:
    return " ".join(
        f"{'bdfgklmnprst'[rng.randrange(12)]}{'aeiou'[rng.randrange(5)]}{rng.randrange(400)}" for _ in range(count)
    )


def edited(rng: random.Random, text: str, rate: float) -> str:
    """The text with this share of its words replaced, and one at the end."""
    return " ".join(prose(rng, 1) if rng.random() < rate else word for word in text.split()[:-1]) + " END"


def function_calls(count: int) -> list[str]:
    """Rows of which nine tenths are the same."""
    rng = random.Random(0)
    instructions = prose(rng, 300)
    cities, names = ([f"{prose(rng, 1)}ville" for _ in range(size)] for size in (300, 500))
    return [
        f"{instructions}\nUSER: {rng.choice(names)} wants the weather in {rng.choice(cities)} on day "
        f"{rng.randrange(365)}"
        f'\nASSISTANT: {{"function": "get_weather", "arguments": {{"city": "{rng.choice(cities)}", '
        f'"units": "{rng.choice(["C", "F"])}"}}}}\nFUNCTION: {{"degrees": {rng.randrange(400) / 10}, "wind": '
        f"{rng.randrange(100)}}}\nASSISTANT: It will be {rng.randrange(40)} degrees, {rng.choice(names)}."
        for _ in range(count)
    ]


def commit_inputs(
    store: Store, texts: Sequence[str], parts: int = 1, dropped: Sequence[str] = (), judged: Sequence[str] | None = None
) -> None:
    """Normalized documents, and verdicts on them (or on others)."""
    out = [identity(text) for text in dropped]
    for spec, folder, chosen in ((NORMALIZED, "documents", texts), (QUALITY, "verdicts", judged or texts)):
        frame = documents(chosen).with_columns(keep=~pl.col("id").is_in(out), reason=pl.lit(None, pl.String))
        bounds = [len(frame) * part // parts for part in range(parts + 1)]
        with store.writer(spec) as writer:
            for part in range(parts):
                name = f"{folder}/part-{part:05d}-of-{parts:05d}.parquet"
                columns = ["id", "keep", "reason"] if spec is QUALITY else ["id", "text", "source", "licence"]
                write_part(writer, name, frame[bounds[part] : bounds[part + 1]].select(columns))
            kept = frame.filter("keep")
            writer.commit({"documents": len(kept), "bytes": int(kept["text"].str.len_bytes().sum())})


def build(
    store: Store, config: MinHashConfig | None = None, run: Run = run_stage, near_duplicates: bool = True
) -> ArtifactRecord:
    with store.writer(NEAR, resumable=True) as writer:
        stage = near_duplicates_stage(
            source(near_duplicates=near_duplicates),
            store.artifact(NORMALIZED),
            store.artifact(QUALITY),
            config or MinHashConfig(),
            writer,
            print,
        )
        items = {phase.name: phase.items for phase in stage.phases}
        return writer.commit({**run(stage, writer), "partitions": items.get("link", 0)})


def found(
    store: Store,
    texts: Sequence[str],
    parts: int = 1,
    dropped: Sequence[str] = (),
    config: MinHashConfig | None = None,
    run: Run = run_stage,
    near_duplicates: bool = True,
) -> tuple[pl.DataFrame, ArtifactRecord]:
    """The rows and the record of the near-duplicates of some texts."""
    commit_inputs(store, texts, parts, dropped)
    record = build(store, config, run, near_duplicates)
    return read_folder(store.artifact(NEAR), "duplicates"), record


def slowly(stage: Stage, workspace: Workspace) -> Counts:
    """Run a stage so that there is time to kill it after each item."""
    return run_stage(stage, workspace, report=lambda progress: time.sleep(0.2))


def kill_when_begun(store: Store, folder: Path) -> None:
    """Run the stage in a process of its own and kill it once an item of a phase is done."""
    program = f"""
        from marin_core.store import Store
        from tests.data.test_near_duplicates import build, slowly
        build(Store({store.root!r}), run=slowly)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 60
        while not (folder.exists() and any(folder.iterdir())):
            assert process.poll() is None, "ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        process.kill()
        process.wait()
