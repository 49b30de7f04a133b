"""Identity of artifacts: what changes a fingerprint, what does not, and how two identities are compared."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.store import ArtifactSpec, FieldChange, canonical_json, payload_changes

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
CONFIGS = st.dictionaries(st.text(), JSON, max_size=5)

RAW = ArtifactSpec("raw/code", "read_source", "1", {"packages": ["fsspec"], "max_bytes": 1000})
CURATED = ArtifactSpec("curated/code", "curate", "1", {"source": "code"}, {"raw": RAW})


def reversed_keys(value: Any) -> Any:
    """The same JSON value with every object's keys in the opposite order."""
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_fingerprint_of_a_spec_is_the_same_in_every_version_of_this_code() -> None:
    # A change of this value makes every artifact in every store be built again.
    assert CURATED.fingerprint == "5282c6c80755a2e4"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(ArtifactSpec("curated/prose", "curate", "1", {"source": "code"}, {"raw": RAW}), id="name"),
        pytest.param(ArtifactSpec("curated/code", "tokenize", "1", {"source": "code"}, {"raw": RAW}), id="task"),
        pytest.param(ArtifactSpec("curated/code", "curate", "2", {"source": "code"}, {"raw": RAW}), id="code_version"),
        pytest.param(ArtifactSpec("curated/code", "curate", "1", {"source": "prose"}, {"raw": RAW}), id="config"),
        pytest.param(ArtifactSpec("curated/code", "curate", "1", {"source": "code"}, {"text": RAW}), id="role"),
        pytest.param(ArtifactSpec("curated/code", "curate", "1", {"source": "code"}), id="no input"),
        pytest.param(
            ArtifactSpec(
                "curated/code", "curate", "1", {"source": "code"}, {"raw": ArtifactSpec("raw/code", "read_source", "2")}
            ),
            id="other input",
        ),
    ],
)
def test_whatever_changes_bytes_changes_the_fingerprint(other: ArtifactSpec) -> None:
    assert other.fingerprint != CURATED.fingerprint


def test_a_change_far_upstream_reaches_the_fingerprint() -> None:
    def tokenized(max_bytes: int) -> ArtifactSpec:
        raw = ArtifactSpec("raw/code", "read_source", "1", {"max_bytes": max_bytes})
        curated = ArtifactSpec("curated/code", "curate", "1", {}, {"raw": raw})
        return ArtifactSpec("tokenized/code", "tokenize", "1", {}, {"curated": curated})

    assert tokenized(1000).fingerprint != tokenized(1001).fingerprint


def test_the_partition_is_no_part_of_the_identity() -> None:
    assert ArtifactSpec("a", "t", "1", partition="3e18-d0512").fingerprint == ArtifactSpec("a", "t", "1").fingerprint


@settings(max_examples=50, deadline=None)
@given(CONFIGS)
def test_the_fingerprint_does_not_depend_on_the_order_of_keys(config: dict[str, Any]) -> None:
    inputs = {"first": RAW, "second": CURATED}
    spec = ArtifactSpec("a", "t", "1", config, inputs)
    assert ArtifactSpec("a", "t", "1", reversed_keys(config), reversed_keys(inputs)).fingerprint == spec.fingerprint


@settings(max_examples=50, deadline=None)
@given(CONFIGS, st.none() | st.text())
def test_a_plan_survives_its_way_through_json(config: dict[str, Any], partition: str | None) -> None:
    spec = ArtifactSpec("a", "t", "1", config, {"raw": RAW, "curated": CURATED}, partition)
    restored = ArtifactSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert restored == spec
    assert restored.fingerprint == spec.fingerprint
    assert restored.payload == spec.payload


def test_a_config_that_is_no_json_number_has_no_fingerprint() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        _ = ArtifactSpec("a", "t", "1", {"rate": float("nan")}).fingerprint


def test_payload_changes_name_the_differing_leaves_in_order() -> None:
    old = {"config": {"plan": {"steps": 10, "seed": 0}, "gone": "x"}, "code_version": "1", "name": "a"}
    new = {"config": {"plan": {"steps": 20, "seed": 0}, "new": [1]}, "code_version": "2", "name": "a"}
    assert list(payload_changes(old, new)) == [
        FieldChange("code_version", "1", "2"),
        FieldChange("config.gone", "x", None),
        FieldChange("config.new", None, [1]),
        FieldChange("config.plan.steps", 10, 20),
    ]


def test_a_changed_input_is_named_by_its_role_and_fingerprint() -> None:
    other = ArtifactSpec("raw/code", "read_source", "2", RAW.config)
    changed = ArtifactSpec("curated/code", "curate", "1", {"source": "code"}, {"raw": other})
    assert [str(change) for change in payload_changes(CURATED.payload, changed.payload)] == [
        f'inputs.raw.fingerprint: "{RAW.fingerprint}" -> "{other.fingerprint}"'
    ]


@settings(max_examples=50, deadline=None)
@given(CONFIGS)
def test_equal_payloads_have_no_changes(config: dict[str, Any]) -> None:
    assert list(payload_changes(config, reversed_keys(config))) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({"weight": 1}, {"weight": 1.0}, id="integer and float"),
        pytest.param({"packed": 1}, {"packed": True}, id="number and truth value"),
        pytest.param({}, {"limit": None}, id="absent and null"),
        pytest.param({"nested": {}}, {"nested": None}, id="empty and null"),
        pytest.param({"shares": [1, 2]}, {"shares": [1.0, 2]}, id="in a list"),
    ],
)
def test_whatever_changes_the_fingerprint_is_named(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert canonical_json(old) != canonical_json(new)
    assert [change.field for change in payload_changes(old, new)] == [*{*old, *new}]
