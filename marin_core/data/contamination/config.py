"""When a document contains an evaluation item: the rules that are part of an artifact's identity."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OverlapRules:
    """When a document contains an evaluation item.

    With m distinct n-grams of the item in the document, the overlap is the larger of m / n-grams of the item and
    m / n-grams of the document: one contains the other. It has to reach `min_overlap`, and m `min_matched` or all the
    n-grams of the item. An item too short for an n-gram has to be equal, word by word, to a paragraph of the document,
    or, if it has fewer than `min_paragraph_words`, to the whole document.

    n-grams with fewer than `min_distinct_words` different words of two characters and with a letter do not count
    (numbers, tables), nor do those of licence notices, nor common ones: those in many items of their evaluation source
    or in many documents of a sample of the training source. Nor do short items that many of its documents repeat.
    """

    n: int = 13
    min_overlap: float = 0.5
    min_matched: int = 5
    min_words: int = 3
    min_paragraph_words: int = 8
    min_distinct_words: int = 5
    # Of a longer item so many n-grams, those with the lowest hashes.
    max_item_ngrams: int = 4096
    # More than so many, and than this share, of the items or documents make an n-gram common; where there are few,
    # more than 5 and than a tenth.
    common_items: tuple[int, float] = (50, 0.01)
    common_documents: tuple[int, float] = (20, 0.001)
    sample_documents: int = 20_000
    sample_bytes: int = 64_000_000


def contamination_config(rules: OverlapRules | None = None) -> dict[str, Any]:
    """The rules, for an artifact's identity."""
    return dataclasses.asdict(rules or OverlapRules())
