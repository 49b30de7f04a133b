"""Profiles on top of others: what merges, what replaces, and which file an error names."""

import itertools
from pathlib import Path

import pytest

from marin_core.errors import MarinError
from marin_core.profile import load_profile
from tests.conftest import TINY_PROFILE
from tests.profile.conftest import ON_A_CLUSTER, WHOLE, line_of

PROMISED = """\
extends = ["gke-smoke", {tiny!r}]

[scale]
eval_sequences = 32

[place]
store = "gs://bucket/lab"
suite_pool = "cpu-4"

[place.kubernetes]
namespace = "tests"
image = "none"
context = "testbed"
worker_command = ["/usr/bin/python", "-m", "marin_core.worker"]
env = {{ STORAGE_EMULATOR_HOST = "http://127.0.0.1:9023" }}
"""


def profile(folder: Path, name: str, text: str) -> str:
    """Write a profile; its path."""
    (folder / f"{name}.toml").write_text(text)
    return str(folder / f"{name}.toml")


def refused(path: str) -> str:
    with pytest.raises(MarinError) as error:
        load_profile(path)
    return str(error.value)


def test_a_cluster_with_a_scale_of_its_own(tmp_path: Path) -> None:
    tiny, loaded = (
        load_profile(str(TINY_PROFILE)),
        load_profile(profile(tmp_path, "a", PROMISED.format(tiny=str(TINY_PROFILE)))),
    )
    assert loaded.name == "a"
    assert (loaded.scale.eval_sequences, tiny.scale.eval_sequences) == (32, 64)
    assert loaded.scale.recipe == tiny.scale.recipe
    assert loaded.scale.sources == tiny.scale.sources
    assert loaded.scale.mixture == tiny.scale.mixture
    assert loaded.place.suite_pools == ("cpu-4",)
    assert loaded.place.data_ranks == 2
    kubernetes = loaded.place.kubernetes
    assert kubernetes is not None
    assert (kubernetes.namespace, kubernetes.context, kubernetes.region) == ("tests", "testbed", "us-east5")
    assert kubernetes.worker_command == ("/usr/bin/python", "-m", "marin_core.worker")
    assert kubernetes.env["STORAGE_EMULATOR_HOST"] == "http://127.0.0.1:9023"


def test_the_places_tables_merge_key_by_key(tmp_path: Path) -> None:
    profile(tmp_path, "base", ON_A_CLUSTER)
    mine = 'extends = "base.toml"\n[place]\nprices.v4 = 3.22\n[place.kubernetes]\nqueue = "tpu"\nenv.SECOND = "two"\n'
    base, loaded = load_profile(str(tmp_path / "base.toml")), load_profile(profile(tmp_path, "mine", mine))
    assert loaded.scale == base.scale
    assert loaded.place.prices == {"v5p": 4.2, "v4": 3.22}
    assert loaded.place.kubernetes is not None
    assert loaded.place.kubernetes.env.items() >= {"FIRST": "1", "SECOND": "two"}.items()
    assert (loaded.place.kubernetes.namespace, loaded.place.kubernetes.queue) == ("lab", "tpu")


def test_the_scales_tables_are_replaced_whole(tmp_path: Path) -> None:
    profile(tmp_path, "base", WHOLE)
    mine = """
    extends = "base.toml"
    [scale]
    sources = { prose = {}, math = {} }
    mixture = { name = "mine", block_size = 128, weights = { prose = 3.0, math = 1.0 } }
    """
    base, loaded = load_profile(str(tmp_path / "base.toml")), load_profile(profile(tmp_path, "mine", mine))
    assert [source.name for source in loaded.scale.sources] == ["prose", "math"]
    assert loaded.scale.mixture.components == ["math", "prose"]
    assert loaded.scale.tokenizer == base.scale.tokenizer
    assert loaded.scale.fit_budgets == base.scale.fit_budgets


def test_a_later_profile_wins_over_an_earlier_one(tmp_path: Path) -> None:
    profile(tmp_path, "one", WHOLE.replace("seconds = 20", "seconds = 1\ndata_ranks = 5"))
    profile(tmp_path, "two", WHOLE.replace("seconds = 20", "seconds = 2"))
    place = load_profile(profile(tmp_path, "both", 'extends = ["one.toml", "two.toml"]')).place
    assert (place.checkpoint_every_seconds, place.data_ranks) == (2, 5)
    place = load_profile(profile(tmp_path, "both", 'extends = ["two.toml", "one.toml"]')).place
    assert (place.checkpoint_every_seconds, place.data_ranks) == (1, 5)


def test_paths_are_relative_to_the_profile_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab" / "shared").mkdir(parents=True)
    profile(tmp_path / "lab" / "shared", "base", WHOLE)
    profile(tmp_path / "lab" / "shared", "middle", 'extends = "base.toml"')
    profile(tmp_path / "lab", "mine", 'extends = "shared/middle.toml"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_PROFILE", "lab/mine.toml")
    assert load_profile().name == "mine"


def test_an_error_names_the_file_in_which_the_key_stands(tmp_path: Path) -> None:
    text = WHOLE.replace("validation_share = 0.04", "validation_share = 4")
    profile(tmp_path, "base", text)
    line = line_of(text, "validation_share")
    mine = profile(tmp_path, "mine", 'extends = "base.toml"\n[scale]\nseed = 1\n')
    assert refused(mine).startswith(f"profile {tmp_path / 'base.toml'}, line {line}: validation_share is 4; ")
    mine = profile(tmp_path, "mine", 'extends = "base.toml"\n[scale]\nvalidation_share = 5\n')
    assert refused(mine).startswith(f"profile {tmp_path / 'mine.toml'}, line 3: validation_share is 5; ")


def test_a_syntax_error_names_the_file_that_has_it(tmp_path: Path) -> None:
    profile(tmp_path, "base", "[scale\n")
    mine = profile(tmp_path, "mine", 'extends = "base.toml"\n')
    assert refused(mine).startswith(f"profile {tmp_path / 'base.toml'}, line 1: not valid TOML")


@pytest.mark.parametrize("others", [[], ["b"], ["b", "c"]], ids=["itself", "in pairs", "in a ring"])
def test_profiles_that_extend_each_other_are_refused(tmp_path: Path, others: list[str]) -> None:
    ring = ["a", *others, "a"]
    for this, following in itertools.pairwise(ring):
        profile(tmp_path, this, f'# A ring.\nextends = "{following}.toml"\n')
    last = ring[-2]
    expected = f"profile {tmp_path / last}.toml, line 2: extends 'a.toml', which extends this profile; take one"
    assert refused(str(tmp_path / "a.toml")).startswith(expected)


def test_the_same_profile_twice_is_no_ring(tmp_path: Path) -> None:
    profile(tmp_path, "base", WHOLE)
    for name in ("left", "right"):
        profile(tmp_path, name, 'extends = "base.toml"')
    assert load_profile(profile(tmp_path, "top", 'extends = ["left.toml", "right.toml"]')).name == "top"


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ('"palmtop"', "extends the unknown profile 'palmtop'; give one of delphi, gke, gke-smoke, laptop, or the path"),
        ('"nowhere.toml"', "extends the unknown profile 'nowhere.toml'; give one of"),
        ("3", "extends is 3; give a profile, or a list of profiles"),
        ('["laptop", 3]', "extends is ['laptop', 3]; give a profile, or a list of profiles"),
    ],
)
def test_what_cannot_be_extended_is_refused(tmp_path: Path, extends: str, message: str) -> None:
    mine = profile(tmp_path, "mine", f"extends = {extends}\n")
    assert refused(mine).startswith(f"profile {mine}, line 1: {message}")
