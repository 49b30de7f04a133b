"""A whole profile to get wrong, one field at a time, and an environment that says nothing about the lab."""

from pathlib import Path

import pytest

WHOLE = """\
[scale]
fit_budgets = [1e11, 2e11, 4e11]
heldout_budgets = [1.6e12]
validation_share = 0.04
eval_sequences = 16

[scale.recipe]
base = "nano"

[scale.sources]
code = { packages = ["fsspec"], max_bytes = 20_000 }
language_reference = {}

[scale.tokenizer]
name = "nano"
vocab_size = 4096
sample_bytes = 10_000

[scale.mixture]
name = "nano"
block_size = 256

[scale.mixture.weights]
code = 1.0

[place]
data_pool = "cpu-1"
suite_pool = "cpu-1"
heldout_pool = "cpu-1"
checkpoint_every_seconds = 20
"""

ON_A_CLUSTER = (
    WHOLE
    + """\
store = "gs://bucket/lab"
bucket_region = "us-east5"

[place.prices]
v5p = 4.2

[place.kubernetes]
namespace = "lab"
image = "registry/lab:1"
region = "us-east5"
env = { FIRST = "1", SECOND = "2" }
"""
)


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MARIN_STORE", "MARIN_IMAGE", "MARIN_PROFILE", "MARIN_MAX_FLOPS", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MARIN_STATE", str(tmp_path / "state"))


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the profile"
    return text.replace(old, new)


def line_of(text: str, key: str) -> int:
    """The line that starts with `key`, counted from 1."""
    (line,) = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(key)]
    return line
