"""Mixtures: how many sequences of each component a block holds, and what the mixture's file and summary say."""

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from marin_core.data.mixture import block_counts, build_mixture
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactSpec, Store

# The published Delphi mixture: weights in TiB, and the sequences of each component in a block of 2048.
DELPHI_WEIGHTS = {
    "nemotron_cc/medium": 3.38,
    "nemotron_cc/hq_synth": 2.72,
    "nemotron_cc/medium_low": 1.54,
    "nemotron_cc/hq_actual": 0.91351,
    "nemotron_cc/medium_high": 0.82471,
    "nemotron_cc/low_actual": 0.70123,
    "nemotron_cc/low_synth": 0.62771,
    "starcoderdata": 0.25,
    "proofpile_2": 0.055,
}
DELPHI_COUNTS = {
    "nemotron_cc/medium": 628 + 5,  # the remainder
    "nemotron_cc/hq_synth": 505,
    "nemotron_cc/medium_low": 286,
    "nemotron_cc/hq_actual": 169,
    "nemotron_cc/medium_high": 153,
    "nemotron_cc/low_actual": 130,
    "nemotron_cc/low_synth": 116,
    "starcoderdata": 46,
    "proofpile_2": 10,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_the_published_weights_give_the_published_counts() -> None:
    assert block_counts(DELPHI_WEIGHTS, 2048) == DELPHI_COUNTS


@given(st.dictionaries(st.text(min_size=1), st.floats(1e-3, 1e3), min_size=1, max_size=8), st.integers(1, 4096))
@settings(deadline=None)
def test_the_counts_of_a_block_add_up_to_it(weights: dict[str, float], block_size: int) -> None:
    assume(all(weight / sum(weights.values()) * block_size >= 1 for weight in weights.values()))
    counts = block_counts(weights, block_size)
    assert counts.keys() == weights.keys()
    assert sum(counts.values()) == block_size
    assert min(counts.values()) > 0


@given(st.permutations(list(DELPHI_WEIGHTS)))
@settings(deadline=None)
def test_the_counts_do_not_depend_on_the_order_of_components(order: list[str]) -> None:
    assert block_counts({name: DELPHI_WEIGHTS[name] for name in order}, 2048) == DELPHI_COUNTS


def test_only_the_ratio_of_weights_counts() -> None:
    assert block_counts({"code": 3, "prose": 1}, 64) == block_counts({"code": 0.75, "prose": 0.25}, 64)


@pytest.mark.parametrize(
    ("weights", "block_size", "expected"),
    [
        pytest.param({"code": 1, "prose": 1}, 3, {"code": 2, "prose": 1}, id="equal weights"),
        pytest.param({"prose": 1, "code": 1}, 3, {"code": 2, "prose": 1}, id="equal weights in another order"),
        pytest.param({"a": 0.34, "b": 0.345, "c": 0.1}, 10, {"a": 5, "b": 4, "c": 1}, id="equal counts"),
    ],
)
def test_of_equal_counts_the_first_by_name_gets_the_remainder(
    weights: dict[str, float], block_size: int, expected: dict[str, int]
) -> None:
    # As Levanter does: the largest count (not weight), the first of several in the order of names.
    assert block_counts(weights, block_size) == expected


def test_a_component_that_would_never_be_read_is_named() -> None:
    with pytest.raises(MarinError, match="mixture: math would get no sequence in a block of 64") as refused:
        block_counts({"code": 1000, "math": 1}, 64)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_not_positive_is_named(weight: float) -> None:
    with pytest.raises(MarinError, match=f"weights must be positive: math={weight}; leave a component out") as refused:
        block_counts({"code": 1.0, "math": weight}, 64)
    assert "\n" not in str(refused.value)


def test_a_mixture_states_the_shares_that_training_sees(store: Store) -> None:
    tokenized = {name: tokenized_source(store, name, tokens) for name, tokens in (("code", 1000), ("prose", 500))}
    spec = ArtifactSpec("mixture/small", "mix", "1", {}, {name: specification(name) for name in tokenized})
    with store.writer(spec) as writer:
        record = writer.commit(build_mixture({"prose": 1.0, "code": 2.0}, 16, tokenized, writer, print))
    written = store.artifact(spec).read_json("mixture.json")
    assert written == {"block_size": 16, "components": record.summary["components"]}
    assert list(written["components"]) == ["code", "prose"]
    assert written["components"]["code"] == {
        "artifact": "tokenized/code",
        "fingerprint": specification("code").fingerprint,
        "content": tokenized["code"].record.content,
        "nominal_share": 2 / 3,
        "effective_share": 11 / 16,
        "train_tokens": 1000,
        "train_documents": 10,
    }
    assert sum(component["effective_share"] for component in written["components"].values()) == 1
    assert record.summary["train_tokens"] == 1500


def specification(name: str) -> ArtifactSpec:
    return ArtifactSpec(f"tokenized/{name}", "tokenize", "1", {"source": name})


def tokenized_source(store: Store, name: str, tokens: int) -> Artifact:
    with store.writer(specification(name)) as writer:
        writer.commit({"train_tokens": tokens, "train_documents": 10})
    return store.artifact(specification(name))
