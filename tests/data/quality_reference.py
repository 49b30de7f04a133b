"""The quality rules once more in plain Python, a document at a time: what the columnar rules must agree with."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from marin_core.data.quality.config import CodeRules, ProseRules, RepetitionRules, Rules


def reference_reason(rules: Rules | None, text: str) -> str | None:
    if isinstance(rules, ProseRules):
        return _prose(rules, text)
    return _code(rules, text) if isinstance(rules, CodeRules) else None


def split_words(kind: str, text: str) -> list[str]:
    if kind == "blank":
        return text.split()
    return [piece for word in text.split() for piece in _pieces(word)]


def _pieces(word: str) -> list[str]:
    """A blank-separated word with punctuation around it and joining punctuation in it apart, cut before apostrophes."""
    places = [place for place, character in enumerate(word) if _in_word(character)]
    first, last = (places[0], places[-1]) if places else (len(word), len(word))
    pieces: list[str] = []
    opened = True
    for place, character in enumerate(word):
        inner = first < place < last
        punctuation = not _in_word(character)
        letter_follows = word[place + 1 : place + 2].isalpha()
        previous = word[place - 1] if place else " "
        joins = character in "-–—~,:<>=/" and letter_follows and _in_word(previous)
        joins |= character == "-" and _digit(previous) and _digit(word[place + 1 : place + 2])
        joining = punctuation and inner and "://" not in word and joins
        initial = character == "." and previous.isalpha() and (place < 2 or not _in_word(word[place - 2]))
        if joining or (punctuation and not (inner or initial or character in "-/\\|@^~")):
            if previous == character == ".":
                pieces[-1] += character
            else:
                pieces.append(character)
            opened = True
        elif opened or (inner and letter_follows and character in "'’"):
            pieces.append(character)
            opened = False
        else:
            pieces[-1] += character
    return pieces


def _digit(character: str) -> bool:
    return character.isalnum() and not character.isalpha()


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _prose(rules: ProseRules, text: str) -> str | None:
    words = split_words(rules.words, text)
    inked = [word for word in words if any(character.isalnum() for character in word)]
    if len(inked) < rules.min_words:
        return "too_few_words"
    if len(inked) > rules.max_words:
        return "too_many_words"
    mean_length = sum(map(len, inked)) / max(1, len(inked))
    if mean_length < rules.min_mean_word_length:
        return "words_too_short"
    if mean_length > rules.max_mean_word_length:
        return "words_too_long"
    if text.count("#") / max(1, len(words)) > rules.max_symbol_ratio:
        return "too_many_hashes"
    if (text.count("...") + text.count("…")) / max(1, len(words)) > rules.max_symbol_ratio:
        return "too_many_ellipses"
    lines = text.split("\n")
    if sum(line.lstrip().startswith(("•", "-")) for line in lines) / len(lines) > rules.max_bullet_lines:
        return "too_many_bullet_lines"
    if sum(line.rstrip().endswith(("...", "…")) for line in lines) / len(lines) > rules.max_ellipsis_lines:
        return "too_many_ellipsis_lines"
    alphabetic = sum(any(character.isalpha() for character in word) for word in words)
    if alphabetic / max(1, len(words)) < rules.min_alphabetic_words:
        return "too_few_alphabetic_words"
    if len(set(rules.stop_words) & set(words)) < rules.min_stop_words:
        return "too_few_stop_words"
    return _repetition(rules.repetition, text, words)


def _repetition(rules: RepetitionRules, text: str, words: list[str]) -> str | None:
    paragraphs = [paragraph.strip("\n") for paragraph in re.split("\n{2,}", text)]
    for pieces, name, max_share, max_characters in (
        (paragraphs, "paragraphs", rules.max_duplicate_paragraphs, rules.max_duplicate_paragraph_characters),
        (text.split("\n"), "lines", rules.max_duplicate_lines, rules.max_duplicate_line_characters),
    ):
        pieces = [piece for piece in pieces if piece]
        seen: set[str] = set()
        again = [piece for piece in pieces if piece in seen or seen.add(piece)]
        if len(again) / max(1, len(pieces)) > max_share:
            return f"duplicate_{name}"
        if sum(map(len, again)) / max(1, len(text)) > max_characters:
            return f"characters_in_duplicate_{name}"
    for n, share in rules.top_ngrams:
        counts = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
        top, count = counts.most_common(1)[0] if counts else ("", 0)
        if len(top) * count / max(1, len(text)) > share:
            return f"top_{n}_gram"
    for n, share in rules.duplicate_ngrams:
        if _repeated_characters(words, n) / max(1, len(text)) > share:
            return f"duplicate_{n}_grams"
    return None


def _repeated_characters(words: Sequence[str], n: int) -> int:
    seen: set[tuple[str, ...]] = set()
    repeated, place = 0, 0
    while place <= len(words) - n:
        gram = tuple(words[place : place + n])
        if gram in seen:
            repeated += sum(map(len, gram))
            place += n
        else:
            seen.add(gram)
            place += 1
    return repeated


def _code(rules: CodeRules, text: str) -> str | None:
    lines = text.split("\n")
    if "<?xml version=" in text[: rules.xml_characters]:
        return "xml"
    if sum(map(len, lines)) / len(lines) > rules.max_mean_line_length:
        return "lines_too_long"
    if max(map(len, lines)) > rules.max_line_length:
        return "a_line_too_long"
    if sum(character.isalnum() for character in text) / max(1, len(text)) < rules.min_alphanumeric:
        return "too_few_letters_and_digits"
    if sum(character.isalpha() for character in text) / max(1, len(text)) < rules.min_letters:
        return "too_few_letters"
    return None
