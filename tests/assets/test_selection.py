"""What `--select` selects, resolved against the real graph with the installed Dagster."""

import click
import dagster as dg
import pytest
from dagster._core.definitions.asset_selection import AssetSelection

from marin_assets.definitions import build_definitions
from marin_assets.keys import artifact_name
from marin_core.build import BuildOptions, build
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import Store
from tests.conftest import LabEnvironment

DELPHI = {"recipe", "suite", "isoflop", "scaling_law", "forecast", "heldout", "verdict", "figures", "dataset"}


@pytest.fixture
def definitions(in_lab: LabEnvironment) -> dg.Definitions:
    return build_definitions()


def selected(definitions: dg.Definitions, text: str) -> set[str]:
    """As `dagster asset materialize --select TEXT` resolves it."""
    keys = AssetSelection.from_coercible(text.split(",")).resolve(definitions.resolve_asset_graph())
    return {artifact_name(key) for key in keys}


def test_a_prefix_selects_its_keys_and_the_upstream_that_the_store_lacks(
    definitions: dg.Definitions, capsys: pytest.CaptureFixture[str]
) -> None:
    names = selected(definitions, "delphi/*")
    assert {f"delphi/{name}" for name in DELPHI} <= names
    assert {"raw/code", "curated/math", "tokenizer/tiny", "tokenized/prose", "mixture/tiny"} <= names
    assert "checkpoints/delphi" not in names
    assert "adding 25 assets that the store lacks" in capsys.readouterr().err


def test_what_is_committed_is_not_added(
    definitions: dg.Definitions, in_lab: LabEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = load_profile()
    store = Store(profile.place.store)
    build(LabGraph.of(profile).sources["code"].stages["raw"], store, BuildOptions(in_lab.folder), print)
    names = selected(definitions, "delphi/*")
    assert "raw/code" not in names
    assert "raw/math" in names
    assert "adding 24 assets" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("delphi/verdict", {"delphi/verdict"}),
        (
            "raw/code*",
            {"raw/code", "curated/code", "tokenizer/tiny", "tokenized/code", "tokenized/math", "tokenized/prose"},
        ),
        ("+normalized/code", {"raw/code", "normalized/code"}),
        ("raw/code,raw/math", {"raw/code", "raw/math"}),
        ('key:"raw/*"', {"raw/code", "raw/language_reference", "raw/math", "raw/prose"}),
        ("group:mixture", {"mixture/tiny"}),
    ],
)
def test_every_other_form_is_as_dagster_reads_it(definitions: dg.Definitions, text: str, expected: set[str]) -> None:
    names = selected(definitions, text)
    assert expected <= names
    assert text.endswith("*") or names == expected


@pytest.mark.parametrize(
    "text", ["delphy/*", "key:nope/*", "tag:nope", "group:nope", "delphi/nope", "key:nope/*,group:nope"]
)
def test_a_selection_of_nothing_is_an_error_that_lists_the_groups(definitions: dg.Definitions, text: str) -> None:
    with pytest.raises(click.UsageError, match=r"matches no asset, nothing was run.*delphi/\*.*raw/\*"):
        selected(definitions, text)


@pytest.mark.parametrize("text", ["delphy/*", "key:nope/*", "tag:nope", "delphi/nope"])
def test_the_command_runs_nothing_for_a_misspelt_selection(lab_environment: LabEnvironment, text: str) -> None:
    result = lab_environment.materialize(text)
    assert result.returncode != 0
    assert not list(lab_environment.store.rglob("artifact.json"))
    assert "matches no asset" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_selection_that_cannot_be_read_is_one_line(definitions: dg.Definitions) -> None:
    with pytest.raises(click.UsageError, match="Invalid selection string"):
        selected(definitions, "delphi/**")


def test_two_prefixes_are_united(definitions: dg.Definitions) -> None:
    assert selected(definitions, "raw/*,normalized/*") == {
        f"{stage}/{source}"
        for stage in ("raw", "normalized")
        for source in ("code", "language_reference", "math", "prose")
    }
