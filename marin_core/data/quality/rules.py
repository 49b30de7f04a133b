"""Quality rules: which there are, their published thresholds, and the verdict of each on a batch of flat texts.

The order of the rules is fixed: the first one that fails a document is its reason. Repetition has a module of its own;
reading and writing documents is in `stage.py`.
"""

import functools

import numpy as np

from marin_core.data.flat.characters import ALPHANUMERIC, LETTER
from marin_core.data.flat.texts import FlatTexts, Spans, text_hash
from marin_core.data.quality import repetition
from marin_core.data.quality.config import CodeRules, ProseRules, Rules

_XML = "<?xml version="


class Reasons:
    """The first rule that fails each of some documents."""

    def __init__(self, documents: int):
        self.found: list[str | None] = [None] * documents
        self.kept = np.ones(documents, bool)

    def fail(self, failed: np.ndarray, reason: str) -> None:
        for document in np.flatnonzero(failed & self.kept):
            self.found[document] = reason
        self.kept &= ~failed


def reasons(rules: Rules | None, texts: list[str]) -> list[str | None]:
    """Why each text is removed; None if it is kept."""
    found = Reasons(len(texts))
    if isinstance(rules, ProseRules):
        _judge_prose(rules, FlatTexts(texts), found)
    elif isinstance(rules, CodeRules):
        _judge_code(rules, texts, FlatTexts(texts), found)
    return found.found


def _judge_prose(rules: ProseRules, flat: FlatTexts, found: Reasons) -> None:
    blank = flat.words("blank")
    words = blank if rules.words == "blank" else flat.words(rules.words)
    total = np.diff(words.first)
    inked = flat.any_of(words, ALPHANUMERIC)
    count = words.per_document(inked)
    mean_length = words.per_document(words.lengths * inked) / np.maximum(count, 1)
    found.fail(count < rules.min_words, "too_few_words")
    found.fail(count > rules.max_words, "too_many_words")
    found.fail(mean_length < rules.min_mean_word_length, "words_too_short")
    found.fail(mean_length > rules.max_mean_word_length, "words_too_long")
    some = np.maximum(total, 1)
    found.fail(flat.occurrences(ord("#")) / some > rules.max_symbol_ratio, "too_many_hashes")
    found.fail(_ellipses(flat) / some > rules.max_symbol_ratio, "too_many_ellipses")
    bullets, ellipses, lines = _line_counts(flat, blank)
    found.fail(bullets / lines > rules.max_bullet_lines, "too_many_bullet_lines")
    found.fail(ellipses / lines > rules.max_ellipsis_lines, "too_many_ellipsis_lines")
    letters = words.per_document(flat.any_of(words, LETTER))
    found.fail(letters / some < rules.min_alphabetic_words, "too_few_alphabetic_words")
    hashes = flat.hashes(words)
    found.fail(_distinct(words, hashes, rules.stop_words) < rules.min_stop_words, "too_few_stop_words")
    repetition.judge(rules.repetition, flat, words, hashes, found.kept, found.fail)


def _judge_code(rules: CodeRules, texts: list[str], flat: FlatTexts, found: Reasons) -> None:
    xml = np.fromiter((_XML in text[: rules.xml_characters] for text in texts), bool, len(texts))
    found.fail(xml, "xml")
    breaks = flat.occurrences(ord("\n"))
    found.fail((flat.lengths - breaks) / (breaks + 1) > rules.max_mean_line_length, "lines_too_long")
    lines = flat.lines()
    found.fail(lines.per_document(lines.lengths > rules.max_line_length) > 0, "a_line_too_long")
    some = np.maximum(flat.lengths, 1)
    found.fail(flat.count(ALPHANUMERIC) / some < rules.min_alphanumeric, "too_few_letters_and_digits")
    found.fail(flat.count(LETTER) / some < rules.min_letters, "too_few_letters")


def _ellipses(flat: FlatTexts) -> np.ndarray:
    """`...` and `…` of each document, without overlap."""
    dots = flat.runs_of(ord("."))
    return dots.per_document(dots.lengths // 3) + flat.occurrences(ord("…"))


def _line_counts(flat: FlatTexts, words: Spans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lines that begin with a bullet, lines that end in an ellipsis, lines) of each document, empty lines too."""
    lines = flat.lines()
    total = flat.occurrences(ord("\n")) + 1
    if not len(words.starts):
        return np.zeros_like(total), np.zeros_like(total), total
    following = np.minimum(np.searchsorted(words.starts, lines.starts), len(words.starts) - 1)
    first = words.starts[following]
    bullet = np.isin(flat.codes[first], [ord("•"), ord("-")]) & (first >= lines.starts) & (first < lines.ends)
    last = words.ends[np.maximum(np.searchsorted(words.starts, lines.ends) - 1, 0)]
    dots = flat.codes[np.maximum(last[:, None] - [1, 2, 3], 0)]
    ellipsis = (dots[:, 0] == ord("…")) | (dots == ord(".")).all(axis=1)
    ellipsis &= (last > lines.starts) & (last <= lines.ends)
    return lines.per_document(bullet), lines.per_document(ellipsis), total


def _distinct(words: Spans, hashes: np.ndarray, wanted: tuple[str, ...]) -> np.ndarray:
    """How many of the wanted words each document has."""
    found = np.zeros((len(words.first) - 1, len(wanted)), bool)
    for number, word in enumerate(wanted):
        places = np.flatnonzero(hashes == np.uint64(_word_hash(word)))
        found[np.searchsorted(words.first, places, side="right") - 1, number] = True
    return found.sum(axis=1)


_word_hash = functools.cache(text_hash)
