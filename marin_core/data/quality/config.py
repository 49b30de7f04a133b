"""Which quality rules there are, and their published thresholds. How a rule is judged is in `rules.py`."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from marin_core.errors import MarinError


@dataclass(frozen=True)
class RepetitionRules:
    """The repetition rules of Gopher, with the thresholds of its table A1 (Rae et al. 2021, arXiv:2112.11446).

    Shares of characters are of the whole text. The most frequent n-gram counts with blanks between its words and, among
    equally frequent ones, is the first. Repeated n-grams are counted from left to right without overlap.
    """

    max_duplicate_paragraphs: float = 0.3
    max_duplicate_paragraph_characters: float = 0.2
    max_duplicate_lines: float = 0.3
    max_duplicate_line_characters: float = 0.2
    # (n, share), by growing n from 2 on, the order in which they are tried.
    top_ngrams: tuple[tuple[int, float], ...] = ((2, 0.2), (3, 0.18), (4, 0.16))
    duplicate_ngrams: tuple[tuple[int, float], ...] = (
        (5, 0.15),
        (6, 0.14),
        (7, 0.13),
        (8, 0.12),
        (9, 0.11),
        (10, 0.10),
    )


@dataclass(frozen=True)
class ProseRules:
    """The quality rules of Gopher (Rae et al. 2021, arXiv:2112.11446, section A.1.1), then its repetition rules.

    `words="blank"` counts what blanks separate; `"punctuation"` counts runs of letters and digits and, apart from them,
    punctuation, as linguistic tokenizers do. A word without a letter or digit is a symbol.
    """

    words: Literal["blank", "punctuation"] = "blank"
    # Words that are not symbols.
    min_words: int = 50
    max_words: int = 100_000
    min_mean_word_length: float = 3
    max_mean_word_length: float = 10
    # `#` and ellipses per word, each by itself.
    max_symbol_ratio: float = 0.1
    max_bullet_lines: float = 0.9
    max_ellipsis_lines: float = 0.3
    # Words with a letter.
    min_alphabetic_words: float = 0.8
    stop_words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")
    min_stop_words: int = 2
    repetition: RepetitionRules = dataclasses.field(default_factory=RepetitionRules)


@dataclass(frozen=True)
class CodeRules:
    """The rules of Codex (Chen et al. 2021, arXiv:2107.03374, section 3.1) with the thresholds of The Stack and of
    StarCoder (Li et al. 2023, arXiv:2305.06161, section 3.1), which also drops XML."""

    max_mean_line_length: float = 100
    max_line_length: int = 1000
    min_alphanumeric: float = 0.25
    min_letters: float = 0.25
    # No `<?xml version=` among so many first characters.
    xml_characters: int = 100


Rules = ProseRules | CodeRules
RULES: dict[str, Rules | None] = {
    "prose": ProseRules(),
    "prose_punctuation": ProseRules(words="punctuation"),
    "code": CodeRules(),
    "none": None,
}


def rules_named(name: str) -> Rules | None:
    """The rule set of a name; None keeps every document.

    Raises:
        MarinError: there is none of that name.
    """
    if name not in RULES:
        raise MarinError(f"quality rules {name!r} are not known; set curation.rules to one of {', '.join(RULES)}")
    return RULES[name]


def rules_config(name: str) -> dict[str, Any]:
    """The rules and thresholds of a name, for an artifact's identity."""
    rules = rules_named(name)
    return {"rules": name} if rules is None else {"rules": name, **dataclasses.asdict(rules)}
