"""Contamination: what counts as overlap with an evaluation item and what never does, and the stage's files."""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.contamination import stage as contamination
from marin_core.data.contamination.boilerplate import LICENCE_NOTICES
from marin_core.data.contamination.config import OverlapRules, contamination_config
from marin_core.data.contamination.overlap import common_above
from marin_core.data.contamination.stage import contamination_stage
from marin_core.data.flat import texts as flat_text
from marin_core.data.flat.word_grams import WordGrams
from marin_core.data.stages import run_items, run_stage
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store
from tests.data.parts import commit_documents, commit_parts, documents, identity, read_folder, run_as_ranks, source

QUESTION = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?"
)
OTHER = (
    "A robe takes two bolts of blue fiber and half that much white fiber, so the tailor who makes it wants to know how "
    "many bolts in total it takes before the market closes."
)
SHORT = "Which planet of the solar system has the most moons?"
NORMALIZED = ArtifactSpec("normalized/test", "normalize", "1")
QUALITY = ArtifactSpec("quality/test", "quality", "1", {}, {"normalized": NORMALIZED})
DUPLICATES = ArtifactSpec("near_duplicates/test", "near", "1", {}, {"normalized": NORMALIZED, "quality": QUALITY})
CONTAMINATION = ArtifactSpec("contamination/test", "contamination", "1", {}, {"near_duplicates": DUPLICATES})


def words(seed: int, count: int, prefix: str = "w") -> str:
    return " ".join(f"{prefix}{number}" for number in random.Random(seed).sample(range(100_000), count))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(QUESTION, id="itself"),
        pytest.param(f"{words(1, 400)}\n\nQ: {QUESTION}\nA: 72\n\n{words(2, 400)}", id="in a long document"),
        pytest.param(QUESTION.upper().replace(" ", "\n\n").replace(",", " ;"), id="other case, blanks and punctuation"),
        pytest.param(f"{words(1, 200)} {QUESTION[:110]}", id="more than half of it"),
        pytest.param(f"{words(1, 50)}\n\n{SHORT.lower()}\n\n{words(2, 50)}", id="a short item as a paragraph"),
    ],
)
def test_a_document_with_an_evaluation_item_is_found(tmp_path: Path, text: str) -> None:
    found = matched(tmp_path, [text, words(3, 100)], {"tests": [QUESTION, SHORT], "others": [OTHER]})
    assert found["id"].to_list() == [identity(text)]
    assert found["evaluation"].to_list() == ["tests"]
    assert found["item"].item() in {identity(QUESTION), identity(SHORT)}
    assert found["overlap"].item() >= 0.5 and found["matched"].item() >= 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(words(1, 500), id="nothing in common"),
        pytest.param(f"{words(1, 200)} {QUESTION[:80]} {words(2, 200)}", id="less than half of it"),
        pytest.param("Natalia sold 24 clips in April and then half as many in May to her friends", id="a paraphrase"),
        pytest.param(f"{words(1, 20)} {SHORT} {words(2, 20)}", id="a short item inside a paragraph"),
        pytest.param(f"{words(1, 20)}\n\nWho are you?\n\n{words(2, 20)}", id="a very short item as a paragraph"),
    ],
)
def test_a_document_that_shares_little_is_not_found(tmp_path: Path, text: str) -> None:
    assert matched(tmp_path, [text], {"tests": [QUESTION, SHORT, "Who are you?"]}).is_empty()


@pytest.mark.parametrize("notice", LICENCE_NOTICES, ids=lambda notice: notice[:40])
def test_licence_notices_do_not_count(tmp_path: Path, notice: str) -> None:
    commented = "\n".join(f"# {line.strip()}" for line in notice.splitlines())
    program = f"{commented}\n\ndef add(left, right):\n    return left + right\n"
    assert matched(tmp_path, [f"{commented}\n\nimport os\n{words(1, 30)}"], {"code": [program, notice]}).is_empty()


def test_tables_of_numbers_do_not_count(tmp_path: Path) -> None:
    table = "\n".join(" ".join(f"{row * column}" for column in range(1, 11)) for row in range(1, 11))
    assert matched(tmp_path, [f"Times tables\n{table}"], {"arithmetic": [f"The table is\n{table}\nof x"]}).is_empty()
    rows = "\n".join(f"| row {row} | a | b | {row}.0 |" for row in range(40))
    assert matched(tmp_path / "b", [f"{rows}\n{words(1, 20)}"], {"tables": [f"{rows}\nwhat is it"]}).is_empty()


def test_what_many_evaluation_items_repeat_does_not_count(tmp_path: Path) -> None:
    instruction = (
        "Read the following passage carefully and then choose the one best answer out of the four options given"
    )
    items = [f"{instruction}: {words(seed, 6)}" for seed in range(100)]
    assert matched(tmp_path, [f"{instruction}\n{words(7000, 50)}"], {"exam": items}).is_empty()


def test_what_many_documents_repeat_does_not_count(tmp_path: Path) -> None:
    banner = "We use cookies on this site to make your visit better and by going on you accept all of these cookies"
    pages = [f"{banner}\n{words(seed, 40)}" for seed in range(200)]
    assert matched(tmp_path, pages, {"web": [f"{banner} or not"]}).is_empty()


def test_an_item_that_few_documents_contain_is_found_in_each(tmp_path: Path) -> None:
    copies = [f"{words(seed, 30)}\n{QUESTION}" for seed in range(5)]
    pages = [words(seed, 40) for seed in range(100, 200)]
    found = matched(tmp_path, copies + pages, {"tests": [QUESTION]})
    assert sorted(found["id"]) == sorted(map(identity, copies))


def test_an_excerpt_of_a_long_item_is_found_by_its_own_size(tmp_path: Path) -> None:
    article = words(1, 3000)
    excerpt = " ".join(article.split()[100:200])
    found = matched(tmp_path, [excerpt, f"{words(2, 2000)} {excerpt}"], {"articles": [article]})
    assert found["id"].to_list() == [identity(excerpt)]


def test_a_very_long_item_is_sampled_and_found(tmp_path: Path) -> None:
    article = words(1, 30_000)
    half = " ".join(article.split()[:16_500])
    third = " ".join(article.split()[:10_000]) + " " + words(2, 30_000, "v")
    found = matched(tmp_path, [half, third], {"books": [article]})
    assert found["id"].to_list() == [identity(half)]
    assert found["matched"].item() < 4096


def test_a_document_in_several_pieces_is_searched_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contamination, flat_text):
        monkeypatch.setattr(module, "MAX_CHARACTERS", 1000)
    pages = [f"{words(seed, 1000)} {words(3, 200)} {text}" for seed, text in ((1, f"{QUESTION} {OTHER}"), (2, "no"))]
    found = matched(tmp_path, pages, {"tests": [OTHER, QUESTION]})
    assert found["id"].to_list() == [identity(pages[0])]


def test_the_best_item_is_named(tmp_path: Path) -> None:
    longer = f"{QUESTION} Then she gave a third of them back to her little brother, who lost them all in the garden."
    page = f"{words(1, 100)} {QUESTION}"
    assert matched(tmp_path, [page], {"a": [longer], "b": [QUESTION]})["evaluation"].to_list() == ["b"]


def test_without_evaluation_sources_nothing_is_found(tmp_path: Path) -> None:
    artifact = contaminated(Store(str(tmp_path)), [QUESTION], {})
    assert read_folder(artifact, "matches").is_empty()
    assert artifact.record.summary["retention"] == 1


WORD = st.sampled_from([f"word{number}" for number in range(12)] + ["7", "Été", "x"])


@given(st.lists(st.lists(WORD, max_size=40).map(" ".join), min_size=1, max_size=6))
@settings(deadline=None)
def test_ngrams_are_those_of_the_words(texts: list[str]) -> None:
    grams = WordGrams(texts, 3)
    tuples = [
        tuple(split[place : place + 3])
        for split in (re.findall(r"\w+", text.lower()) for text in texts)
        for place in range(len(split) - 2)
    ]
    hashes = grams.grams[grams.whole].tolist()
    assert grams.counts.tolist() == [max(0, len(re.findall(r"\w+", text)) - 2) for text in texts]
    assert len(hashes) == len(tuples)
    assert len(set(hashes)) == len(set(tuples)) == len(set(zip(hashes, tuples, strict=True)))
    lettered = [len({word for word in gram if len(word) > 1 and not word.isdigit()}) for gram in tuples]
    assert grams.distinct_lettered()[grams.whole].tolist() == lettered


def test_case_and_batch_change_no_hash() -> None:
    alone = WordGrams([QUESTION.upper()], 13)
    among = WordGrams(["x " * 3000, QUESTION, "y"], 13)
    assert (
        alone.grams[alone.whole].tolist()
        == among.grams[among.whole & (among.documents[: len(among.grams)] == 1)].tolist()
    )


def test_common_means_more_in_a_larger_sample() -> None:
    limits = [common_above((20, 0.001), population) for population in (1, 100, 1000, 20_000, 10**6)]
    assert limits == [5, 10, 20, 20, 1000]


def test_documents_that_were_removed_before_are_not_looked_at(tmp_path: Path) -> None:
    texts = [f"{words(seed, 10)}\n{QUESTION}" for seed in range(3)]
    rejected, duplicate, left = (identity(text) for text in texts)
    artifact = contaminated(
        Store(str(tmp_path)), texts, {"tests": [QUESTION]}, rejected={rejected}, duplicates={duplicate}
    )
    assert read_folder(artifact, "matches")["id"].to_list() == [left]
    summary = artifact.record.summary
    assert (summary["documents_in"], summary["documents"], summary["removed"]) == (1, 0, {"tests": 1})


@pytest.mark.parametrize("folder", ["verdicts", "duplicates"])
def test_a_document_without_an_attribute_is_an_error(tmp_path: Path, folder: str) -> None:
    with pytest.raises(
        MarinError, match=rf"{folder}/part-00000-of-00001.parquet: 1 of 2 documents have no row"
    ) as refused:
        contaminated(Store(str(tmp_path)), [QUESTION, OTHER], {"tests": [SHORT]}, without={folder: identity(OTHER)})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("world", [2, 5])
def test_ranks_and_a_kill_in_between_change_no_byte(tmp_path: Path, world: int) -> None:
    texts = [f"{words(seed, 30)}\n{QUESTION if seed % 40 == 0 else ''}" for seed in range(200)]
    evaluations = {"tests": [QUESTION, SHORT]}
    alone = contaminated(Store(str(tmp_path / "alone")), texts, evaluations, parts=4)
    ranks = contaminated(Store(str(tmp_path / "ranks")), texts, evaluations, parts=4, world=world)
    assert len(read_folder(alone, "matches")) == 5
    assert ranks.record.files == alone.record.files
    assert ranks.record.summary == alone.record.summary


def test_the_rules_are_part_of_the_identity() -> None:
    assert contamination_config() == contamination_config(OverlapRules())
    assert contamination_config() != contamination_config(OverlapRules(min_overlap=0.6))


def matched(root: Path, texts: Sequence[str], evaluations: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    return read_folder(contaminated(Store(str(root)), texts, evaluations), "matches")


def contaminated(
    store: Store,
    texts: Sequence[str],
    evaluations: Mapping[str, Sequence[str]],
    *,
    parts: int = 1,
    rejected: frozenset[str] | set[str] = frozenset(),
    duplicates: frozenset[str] | set[str] = frozenset(),
    without: Mapping[str, str] | None = None,
    world: int | None = None,
) -> Artifact:
    """The contamination artifact of some texts. With `world`, of so many ranks after a first attempt was killed."""
    normalized = commit_documents(store, texts, parts, NORMALIZED)
    frames = [pl.read_parquet(normalized.read(entry.path)) for entry in normalized.record.files]
    verdicts = [f.select("id", keep=~pl.col("id").is_in(list(rejected)), reason=pl.lit("rule")) for f in frames]
    verdicts = [f.with_columns(reason=pl.when("keep").then(None).otherwise("reason")) for f in verdicts]
    rows = [
        f.filter("keep").select("id", cluster=pl.lit("c"), duplicate=pl.col("id").is_in(list(duplicates)))
        for f in verdicts
    ]
    lacking = without or {}
    verdicts = [f.filter(pl.col("id") != lacking.get("verdicts", "")) for f in verdicts]
    rows = [f.filter(pl.col("id") != lacking.get("duplicates", "")) for f in rows]
    quality = commit_parts(store, QUALITY, {"verdicts": verdicts})
    near = commit_parts(store, DUPLICATES, {"duplicates": rows})
    items = {
        name: commit_parts(
            store, ArtifactSpec(f"normalized/{name}", "normalize", "1"), {"documents": [documents(texts)]}
        )
        for name, texts in evaluations.items()
    }
    args = (source(), normalized, quality, near, items)
    if world is not None:
        with store.writer(CONTAMINATION, resumable=True) as writer:
            stage = contamination_stage(*args, writer, print)
            run_items(stage.phases[0], writer)
            run_items(stage.phases[1], writer, rank=1, world=world)
    with store.writer(CONTAMINATION, resumable=True) as writer:
        stage = contamination_stage(*args, writer, print)
        writer.commit(run_as_ranks(stage, writer, world) if world else run_stage(stage, writer))
    return store.artifact(CONTAMINATION)
