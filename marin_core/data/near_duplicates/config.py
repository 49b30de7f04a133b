"""How near-duplicates are found and confirmed: the settings that are part of an artifact's identity."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MinHashConfig:
    """How near-duplicates are found and confirmed.

    Two documents of Jaccard similarity J share a band, and are compared, with probability 1 - (1 - J^rows)^bands. The
    defaults of the bands are those published for the Delphi corpora; `WORD_SHINGLES` are datatrove's.
    """

    bands: int = 26
    rows: int = 11
    ngram: int = 5
    unit: Literal["characters", "words"] = "characters"
    # Characters of a document that are sketched: what is beyond would saturate the sketch.
    text_cap: int = 500_000
    digits: Literal["kept", "zero"] = "kept"
    seed: int = 42
    # The share of a document's word pairs that a longer document has when it is removed (`containment.py`), and the
    # share of the source's documents above which a word pair is boilerplate and does not count.
    min_containment: float = 0.75
    boilerplate_share: float = 0.01


WORD_SHINGLES = MinHashConfig(bands=14, rows=8, unit="words", digits="zero")
