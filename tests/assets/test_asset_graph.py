"""The graph as Dagster sees it: one reviewed snapshot, and what every asset must have."""

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from marin_assets import code_references
from marin_assets.definitions import build_definitions
from marin_assets.keys import artifact_name
from marin_assets.vocabulary import KINDS, TAGS
from marin_core.graph import CHECKPOINTS, EVALS, TRAINED_PLAN, LabGraph
from marin_core.profile import load_profile
from marin_core.records.outcomes import TABLE
from marin_core.tasks.site import SITE

SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "asset_graph.json"


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build_definitions(load_profile("laptop"))


def described(definitions: dg.Definitions) -> dict[str, Any]:
    graph = definitions.resolve_asset_graph()
    nodes = {}
    for key in sorted(graph.get_all_asset_keys(), key=artifact_name):
        node = graph.get(key)
        partitions = node.partitions_def.get_partition_keys() if node.partitions_def else None
        nodes[artifact_name(key)] = {
            "group": node.group_name,
            "upstream": sorted(artifact_name(parent) for parent in node.parent_keys),
            "partitions": partitions,
            "checks": sorted(check.name for check in node.check_keys),
        }
    return nodes


def test_the_graph_is_the_reviewed_one(definitions: dg.Definitions) -> None:
    """After a change that is meant: write `described(...)` into the snapshot and have the difference reviewed."""
    assert described(definitions) == json.loads(SNAPSHOT.read_text())


def test_every_asset_says_what_it_is(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description
        assert node.owners
        assert node.kinds
        assert node.code_version


def test_every_asset_is_found_by_registered_words(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.kinds <= KINDS
        assert {tag for tag in node.tags if not tag.startswith("dagster/kind/")} <= set(TAGS)
    runs = [graph.get(dg.AssetKey(name.split("/"))) for name in (CHECKPOINTS, EVALS, "delphi/suite")]
    assert all(node.tags["marin/suite"] == "nano" for node in runs)
    assert graph.get(dg.AssetKey(["raw", "language_reference"])).tags["license"] == "PSF-2.0"


def test_every_asset_leads_to_the_function_that_makes_it(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for key in graph.get_all_asset_keys() - {dg.AssetKey(["records", "outcomes"])}:
        references = graph.get(key).metadata["dagster/code_references"].code_references
        (here,) = [each for each in references if isinstance(each, dg.LocalFileCodeReference)]
        lines = Path(here.file_path).read_text().splitlines()
        assert here.line_number is not None
        assert lines[here.line_number - 1].startswith(f"def {here.label}(")


def test_the_code_is_linked_to_on_the_page_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_CODE_URL", "https://github.com/lab/house.git")
    monkeypatch.setenv("MARIN_COMMIT", "abc123")
    for cached in (code_references.code_references, code_references._published):
        cached.cache_clear()
    try:
        found = code_references.code_references("train").code_references
    finally:
        monkeypatch.undo()
        for cached in (code_references.code_references, code_references._published):
            cached.cache_clear()
    (page,) = [each.url for each in found if isinstance(each, dg.UrlCodeReference)]
    assert re.fullmatch(r"https://github\.com/lab/house/blob/abc123/marin_core/tasks/training\.py#L\d+", page)


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://github.com/lab/house.git", "https://github.com/lab/house"),
        ("https://token@gitlab.com/lab/group/house", "https://gitlab.com/lab/group/house"),
        ("git@github.com:lab/house.git\n", "https://github.com/lab/house"),
        ("ssh://git@gitlab.example.org:2222/lab/house.git", "https://gitlab.example.org/lab/house"),
        ("/srv/git/house.git", None),
        ("https://git.example.org/lab/house", None),
        ("", None),
    ],
)
def test_a_remote_is_a_page_where_one_is_known(remote: str, page: str | None) -> None:
    assert code_references.repository_page(remote) == page


def test_sources_and_the_site_are_to_be_fresh(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    policies = {artifact_name(key): graph.get(key).freshness_policy for key in graph.get_all_asset_keys()}
    watched = {name for name, policy in policies.items() if policy is not None}
    assert watched == {name for name in policies if name.startswith("raw/")} | {"records/site"}


def test_assets_and_artifacts_have_the_same_names(definitions: dg.Definitions) -> None:
    graph = LabGraph.of(load_profile("laptop"))
    run = next(iter(graph.cells.values()))
    of_a_run = (run, graph.evaluated(run), graph.export(run), graph.publication(run))
    # What these are made of is known only when they are made.
    told = [f"experiments/{id_}/retrospective" for id_ in graph.experiments]
    names = {spec.name for spec in (*graph.unpartitioned(), *of_a_run)} | {*told, TABLE, SITE}
    # A run that belongs to no ladder is an artifact of the ladder's name: a plan is one run, whoever asks for it.
    assets = {artifact_name(key) for key in definitions.resolve_asset_graph().get_all_asset_keys()} - {TRAINED_PLAN}
    assert assets == names


def test_nothing_under_delphi_is_partitioned(definitions: dg.Definitions) -> None:
    """Or `--select 'delphi/*'` would ask for a partition."""
    graph = definitions.resolve_asset_graph()
    under = [graph.get(key) for key in graph.get_all_asset_keys() if key.path[0] == "delphi"]
    assert under
    assert all(node.partitions_def is None for node in under)


def test_no_asset_has_more_partitions_than_the_web_ui_can_show(definitions: dg.Definitions) -> None:
    assert all(len(node["partitions"] or ()) <= 5000 for node in described(definitions).values())


def test_every_declared_source_of_the_published_mixture_has_its_assets() -> None:
    graph = build_definitions(load_profile("delphi")).resolve_asset_graph()
    names = {artifact_name(key) for key in graph.get_all_asset_keys()}
    training = {f"nemotron_cc/{split}" for split in ("hq_actual", "hq_synth", "medium_high", "medium", "medium_low")}
    training |= {"nemotron_cc/low_actual", "nemotron_cc/low_synth", "starcoderdata", "proofpile_2"}
    assert {f"{stage}/{source}" for stage in ("raw", "curated", "tokenized") for source in training} <= names
    evaluation = {name.removeprefix("tokenized/") for name in names if name.startswith("tokenized/")} - training
    assert sum(name.startswith("paloma/") for name in evaluation) == 16
    assert sum(name.startswith("uncheatable/") for name in evaluation) == 7
    assert not {f"curated/{name}" for name in evaluation} & names
    assert {f"normalized/{name}" for name in evaluation} <= {
        artifact_name(parent) for parent in graph.get(dg.AssetKey(["contamination", "starcoderdata"])).parent_keys
    }
