"""Tokens and bytes: which bytes of a text each token covers, and losses in a form that fits any other tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marin_core.data.tokens.encoder import ordinary_json
from marin_core.data.tokens.split import SUFFIX
from marin_core.data.tokens.tokenizer import TokenizerFiles


@dataclass(frozen=True)
class TokenizedText:
    """A text as a model reads it: `ids` (tokens,) int32, of the text alone; `ends` (tokens,) int64, the byte of UTF-8
    up to which the tokens so far cover the text, not decreasing. Tokens that share a character all end with it."""

    ids: np.ndarray
    ends: np.ndarray
    bytes: int


@dataclass(frozen=True)
class ByteLosses:
    """Where a text's nats are: piece i has `nats[i]` (float32) and ends before byte `ends[i]` (int32, increasing, the
    last is the text's length). Within a piece they are spread evenly over its bytes."""

    ends: np.ndarray
    nats: np.ndarray

    def cumulated(self, positions: np.ndarray) -> np.ndarray:
        """Nats of the bytes before each position, (positions,) float64."""
        ends = np.concatenate([[0], self.ends])
        sums = np.concatenate([[0.0], np.cumsum(self.nats, dtype=np.float64)])
        return np.interp(positions, ends, sums)


class AligningTokenizer:
    """Ids as in the shards, special tokens in text included (they are ordinary text), with the bytes they cover."""

    def __init__(self, files: TokenizerFiles, framing: str):
        from tokenizers import Tokenizer

        # Without its post-processor, which would cut blanks off the ends of tokens.
        self._tokenizer = Tokenizer.from_str(ordinary_json(files))
        self._suffix = SUFFIX[framing]

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        encodings = self._tokenizer.encode_batch([text + self._suffix for text in texts], add_special_tokens=False)
        return [_aligned(text, encoding.ids, encoding.offsets) for text, encoding in zip(texts, encodings, strict=True)]


def byte_losses(tokenized: TokenizedText, losses: np.ndarray) -> ByteLosses:
    """The losses of a text's tokens, in nats, as pieces of bytes: a character's tokens become one."""
    covering = tokenized.ends[tokenized.ends > 0]
    # Tokens that cover nothing belong to the piece before them, at the beginning of a text to the first.
    ends = np.maximum(tokenized.ends, covering[0]) if len(covering) else tokenized.ends[:0]
    pieces, starts = np.unique(ends, return_index=True)
    nats = np.add.reduceat(losses.astype(np.float64), starts) if len(starts) else losses[:0]
    return ByteLosses(pieces.astype(np.int32), nats.astype(np.float32))


def byte_offsets(text: str) -> np.ndarray:
    """Byte of UTF-8 at which each character begins, and the length in bytes: (characters + 1,) int64."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))


def _aligned(text: str, ids: list[int], offsets: list[tuple[int, int]]) -> TokenizedText:
    at = byte_offsets(text)
    bounds = np.minimum(np.asarray(offsets, np.int64).reshape(-1, 2), len(text))
    # Of the suffix alone: not a token of the text.
    counted = np.asarray([begin < len(text) or begin == end == 0 for begin, end in offsets], bool)
    ends = np.maximum.accumulate(at[bounds[counted, 1]])
    if len(ends):
        ends[-1] = at[-1]  # a normalizer may have dropped the last characters
    return TokenizedText(np.asarray(ids, np.int32)[counted], ends, int(at[-1]))
