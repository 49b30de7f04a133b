"""Quality: the columnar rules against the same rules in plain Python and against datatrove's, and the stage's files."""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.quality.config import CodeRules, ProseRules, RepetitionRules, Rules, rules_config
from marin_core.data.quality.rules import reasons
from marin_core.data.quality.stage import quality_stage
from marin_core.data.sources.declaration import InstalledOrigin
from marin_core.data.sources.installed import read_installed
from marin_core.data.stages import run_items, run_stage
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store
from tests.data.parts import commit_documents, read_folder, run_as_ranks, source
from tests.data.quality_reference import reference_reason

# Small enough for texts of a few words to reach every rule.
SHORT = {"min_words": 2, "max_words": 40, "min_stop_words": 1, "max_bullet_lines": 0.4}
RULE_SETS = {
    "prose": ProseRules(),
    "punctuation": ProseRules(words="punctuation"),
    "short": ProseRules(**SHORT),
    "short, punctuation": ProseRules(words="punctuation", **SHORT),
    "repetition alone": ProseRules("blank", 0, 10**9, 0, 10**9, 10**9, 1, 1, 0, (), 0),
    "repetition of two": ProseRules(
        "punctuation", 0, 10**9, 0, 10**9, 10**9, 1, 1, 0, (), 0, RepetitionRules(1, 1, 1, 1, ((2, 0.3),), ((2, 0.3),))
    ),
    "code": CodeRules(),
    "short code": CodeRules(max_mean_line_length=8, max_line_length=12),
}
WORDS = st.sampled_from(
    [
        "the",
        "of",
        "and",
        "a",
        "naïve",
        "Zürich",
        "हिन्दी",
        "don't",
        "x_1",
        "…",
        "...",
        "....",
        "#",
        "•",
        "-",
        "42",
        "İ",
        "ﬁ",
    ]
)
BLANKS = st.sampled_from([" ", "  ", "\n", "\n\n", "\n \n", "\t", "\u2028", "\x1f", "\xa0", "\n- ", "\n• "])
TEXTS = st.lists(st.one_of(st.tuples(WORDS, BLANKS).map("".join), st.text(max_size=4)), max_size=60).map("".join)
# Prose has paragraphs and stop words, the others what prose rules are not made for.
INSTALLED = {"prose": ("numpy", "scipy", "polars", "click"), "python": ("fsspec", "click"), "topics": ("python",)}


@given(st.lists(TEXTS, max_size=6), st.sampled_from(sorted(RULE_SETS)))
@settings(deadline=None, max_examples=300)
def test_the_columnar_rules_agree_with_plain_python_on_any_text(texts: list[str], name: str) -> None:
    assert reasons(RULE_SETS[name], texts) == [reference_reason(RULE_SETS[name], text) for text in texts]


@pytest.mark.parametrize("name", sorted(RULE_SETS))
def test_the_columnar_rules_agree_with_plain_python_on_real_text(name: str) -> None:
    texts = [text for kind in INSTALLED for text in installed(kind, 150_000)]
    assert len(texts) > 100
    assert reasons(RULE_SETS[name], texts) == [reference_reason(RULE_SETS[name], text) for text in texts]


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(0, 5))
@settings(deadline=None)
def test_a_verdict_depends_on_the_document_alone(texts: list[str], at: int) -> None:
    at %= len(texts)
    assert reasons(RULE_SETS["short"], texts)[at] == reasons(RULE_SETS["short"], [texts[at]])[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("the cat and the dog", "too_few_words", id="short"),
        pytest.param("", "too_few_words", id="empty"),
        pytest.param("the of " + "internationalization " * 60, "words_too_long", id="long words"),
        pytest.param("a b " * 60, "words_too_short", id="short words"),
        pytest.param("the #hash of #tags " * 30, "too_many_hashes", id="hashes"),
        pytest.param("wait... and then the ... " * 30, "too_many_ellipses", id="ellipses"),
        pytest.param("\n".join(f"- item{n} of the list" for n in range(30)), "too_many_bullet_lines", id="bullets"),
        pytest.param(
            "\n".join(f"the tale of number {n * 7} goes further and further and then on…" for n in range(40)),
            "too_many_ellipsis_lines",
        ),
        pytest.param("the 1111 of 2222 " * 30, "too_few_alphabetic_words", id="numbers"),
        pytest.param("lorem ipsum dolor sit amet " * 20, "too_few_stop_words", id="not English"),
        pytest.param("\n".join(["the same line of words and words"] * 20), "duplicate_lines", id="lines"),
        pytest.param("\n\n".join(["the same part of words and words"] * 20), "duplicate_paragraphs", id="paragraphs"),
        pytest.param("the ending of Frankenstein " * 40, "top_2_gram", id="one bigram over and over"),
    ],
)
def test_the_first_rule_that_fails_is_the_reason(text: str, reason: str) -> None:
    assert reasons(ProseRules(), [text]) == [reason]


def test_prose_with_blank_separated_words_agrees_with_datatrove() -> None:
    """datatrove's own filters, given these words: what differs is which characters are symbols."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
    from datatrove.utils.word_tokenizers import WordTokenizer

    class BlankWords(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

        def sent_tokenize(self, text: str) -> list[str]:
            raise NotImplementedError

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            raise NotImplementedError

    words = BlankWords()
    filters = [GopherQualityFilter(language=words), GopherRepetitionFilter(language=words)]  # pyright: ignore
    texts = [text.strip() for kind in ("prose", "topics") for text in installed(kind, 600_000)]
    theirs = [all(each.filter(Document(text, "")) is True for each in filters) for text in texts]
    agree_where_listed(texts, theirs, ProseRules())


@pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="needs spacy, which datatrove's words come from")
def test_prose_with_punctuation_apart_agrees_with_datatrove_and_spacy() -> None:
    from datatrove.data import Document
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter

    filters = [GopherQualityFilter(), GopherRepetitionFilter()]
    texts = [text.strip() for kind in ("prose", "topics") for text in installed(kind, 300_000)]
    theirs = [all(each.filter(Document(text, "")) is True for each in filters) for text in texts]
    agree_where_listed(texts, theirs, ProseRules(words="punctuation"))


def agree_where_listed(texts: list[str], theirs: list[bool], rules: Rules) -> None:
    ours = reasons(rules, texts)
    differing = [
        (reason, their, text)
        for reason, their, text in zip(ours, theirs, texts, strict=True)
        if (reason is None) != their
    ]
    for reason, their, text in differing:
        print(f"datatrove keeps: {their}; here: {reason}; {text[:60]!r}", file=sys.stderr)
    assert len(texts) > 200 and 0.02 < sum(theirs) / len(texts) < 0.98
    assert len(differing) <= 0.02 * len(texts)


def test_thresholds_are_part_of_the_identity() -> None:
    assert rules_config("prose")["max_words"] == 100_000
    assert rules_config("prose") != rules_config("prose_punctuation")
    assert rules_config("none") == {"rules": "none"}


def test_unknown_rules_are_a_one_line_error() -> None:
    with pytest.raises(MarinError, match=r"^quality rules 'best' are not known; set curation.rules to one of .*code"):
        rules_config("best")


def test_every_document_has_a_verdict_and_the_counts_add_up(tmp_path: Path) -> None:
    texts = [*installed("prose", 100_000), "too short", "# # #"]
    store, verdicts = judged(tmp_path, texts, parts=3)
    table = read_folder(verdicts, "verdicts")
    assert sorted(table["id"]) == table["id"].to_list() and len(table) == len(set(texts))
    assert (table["keep"] == table["reason"].is_null()).all()
    summary = verdicts.record.summary
    assert summary["documents_in"] == len(table) == summary["documents"] + sum(summary["removed"].values())
    assert summary["retention"] == summary["documents"] / len(table)
    kept = {row["id"] for row in table.to_dicts() if row["keep"]}
    normalized = read_folder(store.artifact(NORMALIZED), "documents")
    assert summary["bytes"] == sum(len(r["text"].encode()) for r in normalized.to_dicts() if r["id"] in kept)


def test_rules_none_keep_everything_and_an_empty_part_has_its_file(tmp_path: Path) -> None:
    _, verdicts = judged(tmp_path, ["a", "b"], parts=4, rules="none")
    assert read_folder(verdicts, "verdicts")["keep"].to_list() == [True, True]
    assert len(verdicts.record.files) == 4


@pytest.mark.parametrize("world", [2, 5])
def test_ranks_and_a_kill_in_between_change_no_byte(tmp_path: Path, world: int) -> None:
    texts = list(installed("prose", 60_000))
    _, alone = judged(tmp_path / "alone", texts, parts=4)
    store = Store(str(tmp_path / "ranks"))
    normalized = commit_documents(store, texts, 4, NORMALIZED)
    with store.writer(QUALITY, resumable=True) as writer:
        stage = quality_stage(source(rules="prose"), normalized, writer, print)
        run_items(stage.phases[0], writer, rank=1, world=world)
    with store.writer(QUALITY, resumable=True) as writer:  # the first attempt never committed
        stage = quality_stage(source(rules="prose"), normalized, writer, print)
        writer.commit(run_as_ranks(stage, writer, world))
    again = store.artifact(QUALITY)
    assert again.record.files == alone.record.files
    assert again.record.summary == alone.record.summary


NORMALIZED = ArtifactSpec("normalized/test", "normalize", "1")
QUALITY = ArtifactSpec("quality/test", "quality", "1", {}, {"normalized": NORMALIZED})


def judged(root: Path, texts: Sequence[str], parts: int, rules: str = "prose") -> tuple[Store, Artifact]:
    store = Store(str(root))
    normalized = commit_documents(store, texts, parts, NORMALIZED)
    with store.writer(QUALITY, resumable=True) as writer:
        writer.commit(run_stage(quality_stage(source(rules=rules), normalized, writer, print), writer))
    return store, store.artifact(QUALITY)


def installed(kind: str, max_bytes: int) -> Iterator[str]:
    origin = InstalledOrigin(kind, INSTALLED[kind], max_bytes)  # pyright: ignore[reportArgumentType]
    return (document.text for document in read_installed(origin))
