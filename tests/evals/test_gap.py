"""The gap of two models by byte: known answers, planted differences, and models with different tokenizers."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from marin_core.data.tokens.tokenizer import read_tokenizer
from marin_core.errors import MarinError
from marin_core.evals.alignment import AligningTokenizer, TokenizedText, byte_losses, byte_offsets
from marin_core.evals.documents import first_bytes
from marin_core.evals.gap import byte_aligned_gap
from marin_core.evals.perplexity import BITS, DocumentScores
from marin_core.store import Store
from marin_core.tasks.evals import score_perplexity
from tests.data.parts import identity
from tests.evals.models import (
    TEXTS,
    commit_model,
    commit_texts,
    commit_tokenizer,
    perplexity_spec,
    run,
    tiny_plan,
    uniform,
)

BYTES = sum(len(text.encode()) for text in TEXTS)
KEYS = {("a", identity(text)): text for text in TEXTS}


def test_two_models_that_know_nothing_differ_by_their_tokenizers(tmp_path: Path) -> None:
    """Each needs log2(vocabulary) bits a token, whatever the text: the gap follows from counting tokens."""
    store = Store(str(tmp_path))
    documents = {"a": commit_texts(store, "a")}
    scores, bits = [], []
    for vocab_size in (258, 330):
        tokenizer = commit_tokenizer(store, vocab_size)
        checkpoint = commit_model(store, tiny_plan(vocab_size), tokenizer, uniform)
        spec = perplexity_spec(checkpoint, tokenizer, documents)
        run(store, spec, score_perplexity, tmp_path)
        scores.append(DocumentScores.read(store.artifact(spec)))
        found = AligningTokenizer(read_tokenizer(store.artifact(tokenizer)), "document").tokenize(TEXTS)
        bits.append(sum(len(each.ids) for each in found) * math.log2(vocab_size))
    gap = byte_aligned_gap(scores[0], scores[1], KEYS)
    assert bits[0] > 1.2 * bits[1]
    (row,) = gap.sets
    assert row.name == "a" and row.bytes == BYTES and row.documents == len(TEXTS)
    assert (row.first, row.second) == pytest.approx((bits[0] / BYTES, bits[1] / BYTES), rel=1e-5)
    assert row.gap == pytest.approx((bits[0] - bits[1]) / BYTES, rel=1e-5)
    assert row.stderr and 0 < row.stderr < row.gap


def test_the_gap_of_a_model_and_itself_is_nothing_and_the_gap_turned_around_is_the_same() -> None:
    first, second = scored(lambda word: 2.0), scored(lambda word: 1.0 + len(word) % 3)
    assert all(row.gap == row.bits == 0 for row in byte_aligned_gap(first, first, KEYS).kinds)
    there, back = byte_aligned_gap(first, second, KEYS), byte_aligned_gap(second, first, KEYS)
    assert [row.gap for row in there.kinds] == pytest.approx([-row.gap for row in back.kinds])
    assert [row.stderr for row in there.sets] == pytest.approx([row.stderr for row in back.sets])
    worst = [sorted(abs(span["bits"]) for span in gap.spans) for gap in (there, back)]
    assert worst[0] == pytest.approx(worst[1]) and len(worst[0]) == 40


def test_kinds_of_text_share_out_all_bytes_and_bits() -> None:
    gap = byte_aligned_gap(scored(lambda word: 2.0), scored(lambda word: 1.0 + len(word) % 3), KEYS)
    assert sum(row.bytes for row in gap.kinds) == BYTES
    assert sum(row.bits or 0.0 for row in gap.kinds) == pytest.approx(gap.sets[0].bits)
    assert {row.name.split("/")[0] for row in gap.kinds} == {"text", "whitespace"}
    assert {"text/number", "text/word", "text/punctuation", "text/non_ascii_word", "text/url"} <= {
        row.name for row in gap.kinds
    }


def test_a_difference_is_found_where_it_was_planted() -> None:
    """The first model is 3 nats worse at one number, the second 2 nats worse at one word."""

    def worse(word: str, nats: float) -> DocumentScores:
        return scored(lambda token: 1.0 + (nats if token == word else 0.0))

    gap = byte_aligned_gap(worse("3.14159", 3.0), worse("height", 2.0), KEYS, top=4)
    first = gap.spans[0]
    assert (first["kind"], first["text"], first["set"]) == ("text/number", "3.14159", "a")
    assert first["bits"] == pytest.approx(3 * BITS)
    assert "estimate was [3.14159] — the exact" in first["context"]
    text = KEYS["a", first["id"]]
    assert text.encode()[first["begin"] : first["end"]].decode() == "3.14159"
    others = [span for span in gap.spans if span["bits"] < 0]
    # `height` is twice in each of two lines.
    assert [span["text"] for span in others] == ["height"] * 4
    assert [span["bits"] for span in others] == pytest.approx([-2 * BITS] * 4)
    assert [row.name for row in gap.kinds if abs(row.bits or 0.0) > 1e-6] == ["text/word", "text/number"]
    assert gap.documents[0]["id"] == first["id"] and gap.documents[0]["bits"] == pytest.approx(3 * BITS)
    assert len(gap.documents) == 2 and gap.documents[1]["bits"] == pytest.approx(-8 * BITS)


def test_only_what_both_models_were_scored_on_is_compared() -> None:
    """The second model saw fewer documents, and of one only the beginning."""
    full = scored(lambda word: 1.0)
    cut = first_bytes(TEXTS[2], 50)
    part = DocumentScores(
        pl.concat(
            [scored(lambda word: 2.0, {TEXTS[2]: cut}).table, scored(lambda word: 2.0, {TEXTS[3]: TEXTS[3]}).table]
        )
    )
    gap = byte_aligned_gap(full, part, KEYS)
    assert gap.sets[0].bytes == len(cut.encode()) + len(TEXTS[3].encode())
    assert gap.left_out == 2
    assert gap.sets[0].second == pytest.approx(2 * gap.sets[0].first, rel=0.05)


def test_models_without_a_common_document_cannot_be_compared() -> None:
    first, second = scored(lambda word: 1.0, {TEXTS[0]: TEXTS[0]}), scored(lambda word: 1.0, {TEXTS[1]: TEXTS[1]})
    with pytest.raises(MarinError, match="different documents"):
        byte_aligned_gap(first, second, KEYS)
    with pytest.raises(MarinError, match="1 documents have no text"):
        byte_aligned_gap(first, first, {})


def scored(nats: Callable[[str], float], texts: Mapping[str, str] | None = None) -> DocumentScores:
    """What a model writes that has so many `nats` for each token; tokens are words, numbers, and other characters one
    by one. `texts` maps documents to what was scored of each; by default all of them whole."""
    rows = []
    for whole, text in (texts or {text: text for text in TEXTS}).items():
        at, found = byte_offsets(text), list(re.finditer(r"[\d.]*\d|[^\W\d_]+|.", text, re.DOTALL))
        tokenized = TokenizedText(np.arange(len(found)), at[[match.end() for match in found]], int(at[-1]))
        losses = byte_losses(tokenized, np.asarray([nats(match.group()) for match in found], np.float32))
        rows.append(
            {
                "set": "a",
                "id": identity(whole),
                "bytes": tokenized.bytes,
                "tokens": len(found),
                "nats": float(losses.nats.sum()),
                "ends": losses.ends.tolist(),
                "losses": losses.nats.tolist(),
            }
        )
    return DocumentScores(pl.DataFrame(rows))
