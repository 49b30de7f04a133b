"""Mixtures: how many sequences of each component a block holds, and what the mixture's file and summary say."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from marin_core.data.mixing.config import MixtureConfig
from marin_core.data.mixing.mixture import block_counts, build_mixture, mixture_order
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
    mixture = built(store, {"weights": {"prose": 1.0, "code": 2.0}}, code=(1000, 10, 4000), prose=(500, 10, 2000))
    (stage,) = mixture["stages"]
    assert stage["counts"] == {"code": 11, "prose": 5}
    assert stage["nominal_shares"] == {"code": pytest.approx(2 / 3), "prose": pytest.approx(1 / 3)}
    assert stage["effective_shares"] == {"code": 11 / 16, "prose": 5 / 16}
    assert mixture["components"]["code"] == {
        "artifact": "tokenized/code",
        "fingerprint": specification("code").fingerprint,
        "content": store.artifact(specification("code")).record.content,
        "train_tokens": 1000,
        "train_documents": 10,
        "train_bytes": 4000,
    }


@pytest.mark.parametrize(
    ("unit", "shares"),
    [
        # Code has 4 bytes and 100 tokens a document, prose 8 bytes a token and 50 tokens a document.
        pytest.param("tokens", {"code": 1 / 2, "prose": 1 / 2}, id="tokens"),
        pytest.param("bytes", {"code": 2 / 3, "prose": 1 / 3}, id="bytes"),
        pytest.param("documents", {"code": 2 / 3, "prose": 1 / 3}, id="documents"),
    ],
)
def test_equal_weights_are_equal_shares_of_what_they_weigh(store: Store, unit: str, shares: dict[str, float]) -> None:
    settings = {"weights": {"code": 1, "prose": 1}, "weighted_by": unit}
    mixture = built(store, settings, code=(1000, 10, 4000), prose=(500, 10, 4000))
    assert mixture["stages"][0]["nominal_shares"] == {name: pytest.approx(share) for name, share in shares.items()}


def test_stages_change_the_shares_where_they_start(store: Store) -> None:
    stages = [{"start": 0, "weights": {"prose": 1.0}}, {"start": 32, "weights": {"prose": 1.0, "code": 3.0}}]
    mixture = built(store, {"stages": stages}, code=(10_000, 10, 1), prose=(10_000, 10, 1))
    order = mixture_order(mixture, seq_len=10, seed=0)
    components, _ = order.locate(range(64))
    assert order.names == ["code", "prose"]
    assert (components[:32] == 1).all()
    assert (components[32:48] == 0).sum() == (components[48:] == 0).sum() == 12


def test_a_short_run_repeats_its_data_as_often_as_the_run_that_it_simulates(store: Store) -> None:
    settings = {"weights": {"code": 1.0}, "simulated_target_tokens": 20_000}
    mixture = built(store, settings, code=(9_600, 10, 1))
    # The target run reads 9,600 tokens twice and more; a run of 1,000 tokens does so with 480 of them.
    order = mixture_order(mixture, seq_len=10, seed=0, run_tokens=1000)
    _, sequences = order.locate(range(96))
    assert len(set(sequences.tolist())) == 48
    assert sorted(sequences[:48]) == sorted(sequences[48:])


def test_a_run_that_is_longer_than_the_simulated_one_is_refused(store: Store) -> None:
    settings = {"weights": {"code": 1.0}, "simulated_target_tokens": 20_000}
    mixture = built(store, settings, code=(10_000, 10, 1))
    with pytest.raises(MarinError, match=r"simulates a run of 2e\+04 tokens; this one has 30,000"):
        mixture_order(mixture, seq_len=10, seed=0, run_tokens=30_000)
    with pytest.raises(MarinError, match="say how many tokens this run has"):
        mixture_order(mixture, seq_len=10, seed=0)


def test_a_component_without_a_whole_sequence_is_named(store: Store) -> None:
    mixture = built(store, {"weights": {"code": 1.0, "prose": 1.0}}, code=(1000, 1, 1), prose=(99, 1, 1))
    with pytest.raises(MarinError, match="prose has no whole sequence"):
        mixture_order(mixture, seq_len=100, seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"weights": {"code": 1.0}, "weighted_by": "lines"},
            "weighted_by is 'lines'; there are tokens, bytes, documents",
        ),
        ({"weights": {"code": 1.0}, "shuffle": "none"}, "shuffle is 'none'; there are full, block"),
        ({"weights": {"code": 1.0}, "block_size": 65536}, "block_size is 65536; it must be between 1 and 65535"),
        ({"weights": {}}, "there are no weights"),
        ({}, "give either weights or stages"),
        ({"stages": [{"start": 16, "weights": {"code": 1.0}}]}, "stages start at 16; the first must start at 0"),
        (
            {"stages": [{"start": 0, "weights": {"code": 1.0}}, {"start": 8, "weights": {"code": 1.0}}]},
            "at a multiple of the block size 16",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_any_data_exists(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MarinError, match=message) as refused:
        MixtureConfig.from_profile({"name": "test", "block_size": 16, **settings})
    assert "\n" not in str(refused.value)


def specification(name: str) -> ArtifactSpec:
    return ArtifactSpec(f"tokenized/{name}", "tokenize", "1", {"source": name})


def built(store: Store, settings: dict[str, Any], **sizes: tuple[int, int, int]) -> dict[str, Any]:
    """The `mixture.json` of components with (tokens, documents, bytes) to train on."""
    tokenized = {name: tokenized_source(store, name, *size) for name, size in sizes.items()}
    config = MixtureConfig.from_profile({"name": "small", "block_size": 16, **settings})
    spec = ArtifactSpec(
        "mixture/small", "mix", "1", config.to_json(), {name: specification(name) for name in tokenized}
    )
    with store.writer(spec) as writer:
        record = writer.commit(build_mixture(MixtureConfig.from_json(spec.config), tokenized, writer, print))
    written = store.artifact(spec).read_json("mixture.json")
    assert written["components"] == record.summary["components"]
    return written


def tokenized_source(store: Store, name: str, tokens: int, documents: int, size: int) -> Artifact:
    with store.writer(specification(name)) as writer:
        writer.commit({"train_tokens": tokens, "train_documents": documents, "train_bytes": size})
    return store.artifact(specification(name))
