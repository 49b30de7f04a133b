"""`marin lineage`: from an artifact to the raw sources, through what was really read."""

import json
import re
from collections import Counter

import pytest

from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec
from tests.cli.small_lab import SmallLab
from tests.conftest import LabEnvironment


def upstream(spec: ArtifactSpec) -> dict[tuple[str, str], ArtifactSpec]:
    """A spec and everything that it is made of."""
    found = {(spec.name, spec.fingerprint): spec}
    for one in spec.inputs.values():
        found |= upstream(one)
    return found


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_it_has_exactly_what_the_graph_says_the_artifact_is_made_of(whole_lab: SmallLab) -> None:
    told = whole_lab.json("lineage", "delphi/verdict")
    keys = [(one["name"], one["fingerprint"]) for one in told["artifacts"]]
    assert Counter(keys) == Counter(upstream(whole_lab.graph.verdict).keys())
    inputs = {(i["name"], i["fingerprint"]) for one in told["artifacts"] for i in one["inputs"]}
    assert inputs | {keys[-1]} == set(keys)
    assert (told["root"]["name"], told["root"]["fingerprint"]) == keys[-1]


def test_inputs_come_before_what_is_made_of_them(whole_lab: SmallLab) -> None:
    seen: set[str] = set()
    for one in whole_lab.json("lineage", "delphi/verdict")["artifacts"]:
        assert {i["fingerprint"] for i in one["inputs"]} <= seen
        seen.add(one["fingerprint"])


def test_the_leaves_of_the_data_are_the_raw_sources_with_their_origins(whole_lab: SmallLab) -> None:
    told = whole_lab.json("lineage", "mixture/tiny")["artifacts"]
    leaves = {one["name"]: one["origin"] for one in told if not one["inputs"]}
    raw = [made.stages["raw"] for made in whole_lab.graph.sources.values()]
    assert leaves == {spec.name: spec.payload["config"]["origin"] for spec in raw}
    assert len(lines_with(whole_lab.marin("lineage", "mixture/tiny"), "from ", "packages fsspec")) == 1


def test_a_number_stands_at_the_root_with_commit_and_time(whole_lab: SmallLab) -> None:
    record = whole_lab.store.artifact(whole_lab.graph.verdict).record
    lines = whole_lab.marin("lineage", "delphi/verdict").splitlines()
    assert lines[0].startswith(f"delphi/verdict {record.fingerprint}")
    assert record.provenance.ended[:10] in lines[0]
    assert (record.provenance.commit or "no commit known")[:9] in lines[0]
    assert "actual_loss 3.25" in lines[1]


def test_every_artifact_is_told_once_and_then_referred_to(whole_lab: SmallLab) -> None:
    text = whole_lab.marin("lineage", "delphi/verdict", "--all")
    for _, fingerprint in upstream(whole_lab.graph.verdict):
        assert len([line for line in lines_with(text, fingerprint) if "told above" not in line]) == 1


def test_partitions_are_summed_up_unless_all_are_asked_for(whole_lab: SmallLab) -> None:
    cells = whole_lab.graph.cells
    summed = whole_lab.marin("lineage", "delphi/suite")
    assert len(lines_with(summed, f"{len(cells)} runs of checkpoints/delphi", "all of ")) == 1
    every = whole_lab.marin("lineage", "delphi/suite", "--all")
    assert [len(lines_with(every, f"checkpoints/delphi [{key}]")) for key in cells] == [1] * len(cells)


def test_the_depth_is_the_distance_from_the_root(whole_lab: SmallLab) -> None:
    def names(depth: int) -> set[str]:
        told = whole_lab.json("lineage", "tokenizer/tiny", "--depth", str(depth))["artifacts"]
        return {one["name"] for one in told}

    assert names(0) == {"tokenizer/tiny"}
    assert names(1) == {"tokenizer/tiny", "curated/code", "curated/prose", "curated/math"}
    told = whole_lab.json("lineage", "tokenizer/tiny", "--depth", "1")["artifacts"]
    assert {one["name"]: one["followed"] for one in told} == {name: name == "tokenizer/tiny" for name in names(1)}


def test_it_shows_what_was_read_and_not_what_would_be_read_now(lab: SmallLab) -> None:
    before = lab.graph.mixture
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    assert lab.graph.mixture.fingerprint != before.fingerprint
    told = lab.json("lineage", "mixture/tiny")
    assert told["root"]["fingerprint"] == before.fingerprint
    (raw,) = [one for one in told["artifacts"] if one["name"] == "raw/code"]
    assert raw["origin"]["max_bytes"] == 300_000


def test_what_the_profile_means_now_comes_before_what_is_newer(lab: SmallLab) -> None:
    before = lab.graph.mixture
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    after = lab.commit(lab.graph.mixture)
    assert lab.json("lineage", "mixture/tiny")["root"]["fingerprint"] == after.fingerprint
    lab.edit("max_bytes = 400_000", "max_bytes = 300_000")
    assert lab.json("lineage", "mixture/tiny")["root"]["fingerprint"] == before.fingerprint
    named = lab.json("lineage", "mixture/tiny", "--fingerprint", after.fingerprint[:8])
    assert named["root"]["fingerprint"] == after.fingerprint


def test_an_input_with_other_content_than_was_read_is_marked(lab: SmallLab) -> None:
    raw = lab.graph.sources["code"].stages["raw"]
    lab.rebuild(raw, "another text")
    told = lab.json("lineage", "mixture/tiny")["artifacts"]
    changed = {(one["name"], i["name"]) for one in told for i in one["inputs"] if i["changed"]}
    assert changed == {("normalized/code", "raw/code")}
    assert len(lines_with(lab.marin("lineage", "mixture/tiny"), "raw/code", "changed since it was read")) == 1


def test_an_input_that_is_gone_is_marked_and_the_rest_is_there(lab: SmallLab) -> None:
    gone = lab.graph.sources["code"].stages["normalized"]
    lab.delete(gone)
    told = lab.json("lineage", "curated/code")["artifacts"]
    assert {i["name"] for one in told for i in one["inputs"] if i["gone"]} == {"normalized/code"}
    assert "raw/code" not in {one["name"] for one in told}
    assert "raw/language_reference" in {one["name"] for one in told}
    assert lines_with(lab.marin("lineage", "curated/code"), gone.fingerprint, "gone from the store")


def test_one_partition_of_an_asset(whole_lab: SmallLab) -> None:
    told = whole_lab.json("lineage", "checkpoints/delphi", "--partition", "8e9-d0024")
    assert told["root"]["fingerprint"] == whole_lab.graph.cells["8e9-d0024"].fingerprint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["verdict"], "no asset 'verdict'; there are delphi/verdict"),
        (["checkpoints/delphi"], "name one with --partition: 8e9-d0008"),
        (["checkpoints/delphi", "--partition", "8e9-d9999"], "no partition '8e9-d9999'; there are 8e9-d0008"),
        (["delphi/verdict", "--partition", "8e9-d0024"], "has no partitions"),
        (["delphi/verdict", "--fingerprint", "zz"], "none begins with 'zz'"),
        (["delphi/report"], "delphi/report is not in the store"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(whole_lab: SmallLab, arguments: list[str], named: str) -> None:
    with pytest.raises(MarinError, match=re.escape(named)):
        whole_lab.marin("lineage", *arguments)


def test_a_real_verdict_leads_to_the_held_out_run_and_the_raw_sources(finished_lab: LabEnvironment) -> None:
    result = finished_lab.run("marin", "lineage", "delphi/verdict", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    told = json.loads(result.stdout)["artifacts"]
    leaves = {one["name"] for one in told if not one["inputs"]}
    assert leaves == {"raw/code", "raw/prose", "raw/math", "raw/language_reference", "delphi/recipe"}
    assert [i["gone"] or i["changed"] for one in told for i in one["inputs"]].count(True) == 0
    # The forecast says which model it is, so that it is no input before the task reads it.
    (heldout,) = [one for one in told if one["name"] == "delphi/heldout"]
    assert "1.28e11-optimal" in {i["partition"] for i in heldout["inputs"]}
