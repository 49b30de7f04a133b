"""Text to token ids, in batches: a fast library behind one interface, and the reference that judges it.

Text is text here: a document that spells a special token gets ordinary ids for it, never the control token. Tokens that
a vocabulary adds without calling them special are ordinary entries, and are found in text as the reference finds them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marin_core.data.tokens.tokenizer import TokenizerFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Not a character: no text that UTF-8 files should hold can meet it.
_UNREACHABLE = "\U0010ffff"


# What normalizers and pre-tokenizers treat differently: a model that the fast library half knows shows here.
_PROBE = (
    "",
    " A  text's 12345 words,\n\n\tI'LL don’t…\r\n  ",
    "Ⅷ½² ﬁ e\u0301 Å İıſ ΑΒΓ абв אבג ابت ٠١٢ 中文 日本語 한국어",
    "😀👩‍👩‍👧‍👦 \u200b\ufeff\x00\x7f\u2003 == {x: [y]} <a href='b'>",
)


@dataclass(frozen=True)
class Ids:
    """Token ids of a batch of texts: `flat` (tokens,) int32, and `offsets` (texts + 1,) int64 into it."""

    flat: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]


@dataclass(frozen=True)
class Rows:
    """Rows of a cache: `lengths` (rows,) int64, and for each field the values of all rows, (sum of lengths,) int32."""

    lengths: np.ndarray
    values: Mapping[str, np.ndarray]

    def row(self, number: int) -> "Rows":
        """One row, copied: it outlives the batch without holding it in memory."""
        start = int(self.lengths[:number].sum())
        end = start + int(self.lengths[number])
        return Rows(
            self.lengths[number : number + 1], {field: flat[start:end].copy() for field, flat in self.values.items()}
        )


class Encoder(Protocol):
    """What turns texts into ids, without BOS and EOS."""

    def encode(self, texts: pa.LargeStringArray) -> Ids: ...


class FastEncoder:
    """gigatoken: no Python object per document or token."""

    def __init__(self, tokenizer_json: str):
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(tokenizer_json)

    def encode(self, texts: pa.LargeStringArray) -> Ids:
        encoded: Any = self._tokenizer.encode_batch(_as_awkward(texts)).layout.to_packed()
        return Ids(np.asarray(encoded.content.data).view(np.int32), np.asarray(encoded.offsets.data))


class ReferenceEncoder:
    """tokenizers: what every other tool of the field means by a `tokenizer.json`."""

    def __init__(self, tokenizer: "Tokenizer"):
        self._tokenizer = tokenizer

    def encode(self, texts: pa.LargeStringArray) -> Ids:
        encodings = self._tokenizer.encode_batch_fast(texts.to_pylist(), add_special_tokens=False)
        rows = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        return Ids(np.concatenate([np.empty(0, np.int32), *rows]), offsets)


def load_encoder(tokenizer: TokenizerFiles, log: Callable[[str], None]) -> Encoder:
    """The fast encoder, or the reference where the fast one does not know this kind of vocabulary."""
    encoder, cause = _load_encoder(tokenizer)
    if cause:
        log(f"tokenizer: warning: encoding with the reference, about fifty times slower; the fast library: {cause}")
    return encoder


# Sources that one process tokenizes share what takes as long to load as a hundred megabytes to encode.
@lru_cache(maxsize=1)
def load_reference(tokenizer: TokenizerFiles) -> ReferenceEncoder:
    return ReferenceEncoder(reference_tokenizer(tokenizer, special=False))


@lru_cache(maxsize=1)
def _load_encoder(tokenizer: TokenizerFiles) -> tuple[Encoder, str | None]:
    """The encoder, and why it is not the fast one."""
    reference, probe = load_reference(tokenizer), pa.array(_PROBE, pa.large_string())
    try:
        fast = FastEncoder(ordinary_json(tokenizer))
        if np.array_equal(fast.encode(probe).flat, reference.encode(probe).flat):
            return fast, None
        return reference, "other ids for a probe text"
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        return reference, (str(error).splitlines() or [type(error).__name__])[0]


def reference_tokenizer(tokenizer: TokenizerFiles, *, special: bool) -> "Tokenizer":
    """The reference, which takes special tokens in text for control tokens, if `special`, or for ordinary text.

    The file as it is, unless its model itself finds special tokens in text, where they should be ordinary.
    """
    from tokenizers import Tokenizer

    changed = not special and _model_finds_special(tokenizer)
    reference = Tokenizer.from_str(ordinary_json(tokenizer) if changed else tokenizer.tokenizer_json)
    reference.encode_special_tokens = not special
    # Truncation and padding are for batches of a model, not for a corpus.
    reference.no_truncation()
    reference.no_padding()
    return reference


def ordinary_json(tokenizer: TokenizerFiles) -> str:
    """`tokenizer.json` without its special tokens: neither added nor, where its model could reach them, in the model.

    All other ids stay as they are. The token for what is unknown stays too: a model needs it.
    """
    model = dict(tokenizer.parsed["model"])
    removed = set(tokenizer.special) - {model.get("unk_token")}
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {piece: id_ for piece, id_ in vocab.items() if piece not in removed}
    else:
        model["vocab"] = [
            [
                f"{_UNREACHABLE}{piece}{_UNREACHABLE}" if piece in removed and number != model.get("unk_id") else piece,
                score,
            ]
            for number, (piece, score) in enumerate(vocab)
        ]
    added = [token for token in tokenizer.parsed["added_tokens"] if token["content"] not in removed]
    # A post-processor's templates name the special tokens; BOS and EOS are not the encoder's business.
    without = dict.fromkeys(("post_processor", "truncation", "padding"))
    data = {**tokenizer.parsed, **without, "added_tokens": added, "model": model}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def text_rows(texts: pa.LargeStringArray, encoder: Encoder, bos: int | None, eos: int, suffix: str = "") -> Rows:
    """A row `input_ids` for each text: BOS if there is one, the ids of text and suffix, EOS."""
    if suffix:
        texts = pc.call_function("binary_join_element_wise", [texts, *map(_scalar, (suffix, ""))])
    ids = encoder.encode(texts)
    before = 0 if bos is None else 1
    lengths = np.diff(ids.offsets) + before + 1
    ends = np.cumsum(lengths)
    flat = np.empty(int(ends[-1]) if len(ends) else 0, np.int32)
    flat[ends - 1] = eos
    if bos is not None:
        flat[ends - lengths] = bos
    # One copy of memory per document: a mask over tokens costs several times as much.
    starts, offsets, source = (ends - lengths + before).tolist(), ids.offsets.tolist(), ids.flat
    for row, start in enumerate(starts):
        begin, end = offsets[row], offsets[row + 1]
        flat[start : start + end - begin] = source[begin:end]
    return Rows(lengths, {"input_ids": flat})


def _model_finds_special(tokenizer: TokenizerFiles) -> bool:
    """Merges never make a special token; whole-word look-ups and other models may."""
    model = tokenizer.parsed["model"]
    if model.get("type", "BPE") == "BPE" and not model.get("ignore_merges"):
        return False
    vocab = model["vocab"]
    pieces = vocab if isinstance(vocab, dict) else {piece for piece, _ in vocab}
    return any(token in pieces for token in tokenizer.special)


def _as_awkward(texts: pa.LargeStringArray) -> Any:
    """The same memory as an awkward array of strings."""
    import awkward as ak
    from awkward.contents import ListOffsetArray, NumpyArray
    from awkward.index import Index64

    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    characters: Any = np.frombuffer(data or b"", np.uint8)
    return ak.Array(
        ListOffsetArray(
            Index64(bounds),
            NumpyArray(characters, parameters={"__array__": "char"}),
            parameters={"__array__": "string"},
        )
    )


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())
