"""`marin plan` as a person or a script runs it, on stores that a test fills by hand."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import ArtifactSpec, Store

MARIN = Path(sys.executable).with_name("marin")
BUDGETS = list(load_profile("laptop").scale.fit_budgets)
PROFILE = f"""
[scale]
fit_budgets = {BUDGETS}
heldout_budgets = [{4 * max(BUDGETS)}]
validation_share = 0.04
eval_sequences = 16

[scale.recipe]
base = "nano"

[scale.sources]
code = {{ packages = ["fsspec"], max_bytes = 20_000 }}

[scale.tokenizer]
name = "nano"
vocab_size = 4096
sample_bytes = 10_000

[scale.mixture]
name = "nano"
block_size = 256
weights = {{ code = 1.0 }}

[place]
data_pool = "cpu-1"
suite_pool = "cpu-1"
heldout_pool = "cpu-1"
checkpoint_every_seconds = 20
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with a small profile, `small.toml`; the lab's state goes there too."""
    (tmp_path / "small.toml").write_text(PROFILE)
    return tmp_path


def edit(lab: Path, old: str, new: str) -> None:
    """Change the profile as a person would."""
    profile = lab / "small.toml"
    assert old in profile.read_text()
    profile.write_text(profile.read_text().replace(old, new))


def marin(lab: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `marin …` with nothing of this machine's lab in reach."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "DAGSTER_"))}
    own = {"MARIN_STATE": str(lab / "state"), "DAGSTER_HOME": str(lab / "dagster"), "COLUMNS": "160"}
    return subprocess.run(
        [MARIN, *arguments],
        env=inherited | own | environment,
        cwd=lab,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def plan(lab: Path, **environment: str) -> str:
    """What `marin plan` of the small profile prints for people."""
    result = marin(lab, "plan", "--profile", "small.toml", **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def statuses(lab: Path) -> list[dict[str, Any]]:
    result = marin(lab, "plan", "--profile", "small.toml", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def status_of(lab: Path, name: str) -> dict[str, Any]:
    (found,) = [status for status in statuses(lab) if status["name"] == name]
    return found


def graph_of(lab: Path) -> LabGraph:
    return LabGraph.of(load_profile(str(lab / "small.toml")))


def commit(lab: Path, spec: ArtifactSpec, text: str = "a document") -> None:
    """Put an artifact into the lab's default store."""
    with Store(str(lab / "state" / "store")).writer(spec) as writer:
        with writer.open("documents.txt") as file:
            file.write(text.encode())
        writer.commit({"documents": 1})


def refused(lab: Path, *arguments: str) -> str:
    """The one line of a command that fails."""
    result = marin(lab, *arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_on_an_empty_store_everything_is_missing(lab: Path) -> None:
    found = statuses(lab)
    assert {status["state"] for status in found} == {"missing"}
    assert [status["changes"] for status in found] == [[]] * len(found)


def test_the_plan_has_every_artifact_of_the_graph_once(lab: Path) -> None:
    graph = graph_of(lab)
    evaluated = [graph.evaluated(run) for run in graph.cells.values()]
    results = [result for run in graph.cells.values() for result in graph.evaluations(run).values()]
    arms = [run for made in graph.experiments.values() for runs in made.runs.values() for run in runs]
    runs = [*graph.cells.values(), *arms]
    expected = {spec.fingerprint for spec in (*graph.unpartitioned(), *runs, *evaluated, *results)}
    found = [status["fingerprint"] for status in statuses(lab)]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_inputs_come_before_what_is_made_of_them(lab: Path) -> None:
    seen: set[tuple[str, str | None]] = set()
    for status in statuses(lab):
        assert {(i["name"], i["partition"]) for i in status["inputs"]} <= seen
        seen.add((status["name"], status["partition"]))


def test_the_json_plan_is_a_list_of_objects_with_the_same_fields(lab: Path) -> None:
    fields = {"name", "partition", "fingerprint", "state", "changes", "rebuilt_inputs", "inputs"}
    found = statuses(lab)
    assert [set(status) for status in found] == [fields] * len(found)


def test_for_people_the_plan_is_a_tree_that_names_profile_and_store(lab: Path) -> None:
    lines = plan(lab).splitlines()
    assert lines[0] == f"profile small, store {lab / 'state' / 'store'}"
    assert lines[-1].endswith(" missing")
    runs = len(graph_of(lab).cells)
    assert any(line.endswith(f"0 of {runs} partitions of checkpoints/delphi committed") for line in lines)


def test_looking_at_the_plan_writes_nothing(lab: Path) -> None:
    plan(lab)
    assert [path.name for path in lab.iterdir()] == ["small.toml"]


def test_a_committed_artifact_is_committed_and_nothing_else_is(lab: Path) -> None:
    commit(lab, graph_of(lab).sources["code"].stages["raw"])
    assert [s["name"] for s in statuses(lab) if s["state"] == "committed"] == ["raw/code"]
    lines = plan(lab).splitlines()
    assert any("✓ committed raw/code" in line for line in lines)
    assert lines[-1].startswith("1 committed, ")


def test_a_changed_setting_is_named_with_its_old_and_new_value(lab: Path) -> None:
    commit(lab, graph_of(lab).sources["code"].stages["raw"])
    edit(lab, "max_bytes = 20_000", "max_bytes = 30_000")
    found = status_of(lab, "raw/code")
    assert found["state"] == "missing"
    assert found["changes"] == [{"field": "config.origin.max_bytes", "old": 20_000, "new": 30_000}]
    assert "because config.origin.max_bytes: 20000 -> 30000" in plan(lab)


def test_a_changed_input_is_the_reason_for_what_is_made_of_it(lab: Path) -> None:
    before = graph_of(lab).sources["code"].stages
    commit(lab, before["raw"])
    commit(lab, before["normalized"])
    edit(lab, "max_bytes = 20_000", "max_bytes = 30_000")
    after = graph_of(lab).sources["code"].stages
    (change,) = status_of(lab, "normalized/code")["changes"]
    assert change["field"] == "inputs.raw.fingerprint"
    assert (change["old"], change["new"]) == (before["raw"].fingerprint, after["raw"].fingerprint)
    assert "because its inputs are others: raw" in plan(lab)


def test_changing_the_setting_back_finds_the_first_build_again(lab: Path) -> None:
    commit(lab, graph_of(lab).sources["code"].stages["raw"])
    edit(lab, "max_bytes = 20_000", "max_bytes = 30_000")
    commit(lab, graph_of(lab).sources["code"].stages["raw"])
    edit(lab, "max_bytes = 30_000", "max_bytes = 20_000")
    assert status_of(lab, "raw/code")["state"] == "committed"


def test_the_most_similar_earlier_build_is_compared_with(lab: Path) -> None:
    edit(lab, 'packages = ["fsspec"], max_bytes = 20_000', 'packages = ["click"], max_bytes = 10_000')
    commit(lab, graph_of(lab).sources["code"].stages["raw"])
    edit(lab, 'packages = ["click"], max_bytes = 10_000', 'packages = ["fsspec"], max_bytes = 20_000')
    commit(lab, graph_of(lab).sources["code"].stages["raw"])
    edit(lab, "max_bytes = 20_000", "max_bytes = 30_000")
    assert [change["field"] for change in status_of(lab, "raw/code")["changes"]] == ["config.origin.max_bytes"]


def test_an_artifact_whose_input_was_rebuilt_with_other_content_is_stale(lab: Path) -> None:
    stages = graph_of(lab).sources["code"].stages
    commit(lab, stages["raw"])
    commit(lab, stages["normalized"])
    shutil.rmtree(lab / "state" / "store" / "raw" / "code" / stages["raw"].fingerprint)
    commit(lab, stages["raw"], text="another document")
    found = status_of(lab, "normalized/code")
    assert (found["state"], found["rebuilt_inputs"]) == ("stale", ["raw"])
    assert "because its input raw was rebuilt with other content" in plan(lab)


def test_a_half_written_artifact_is_missing(lab: Path) -> None:
    spec = graph_of(lab).sources["code"].stages["raw"]
    with Store(str(lab / "state" / "store")).writer(spec) as writer, writer.open("documents.txt") as file:
        file.write(b"half a docu")
    assert status_of(lab, "raw/code")["state"] == "missing"


def test_the_profile_can_come_from_the_environment(lab: Path) -> None:
    result = marin(lab, "plan", MARIN_PROFILE="small.toml")
    assert result.stdout.startswith("profile small, ")


def test_a_store_whose_path_has_brackets_is_printed_as_it_is(lab: Path) -> None:
    store = lab / "[bold]" / "store"
    assert plan(lab, MARIN_STORE=str(store)).splitlines()[0] == f"profile small, store {store}"


def test_an_unknown_profile_is_refused_with_the_known_ones(lab: Path) -> None:
    assert "unknown profile 'palmtop'; set MARIN_PROFILE to one of delphi, gke, gke-smoke, laptop" in refused(
        lab, "plan", "--profile", "palmtop"
    )


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("eval_sequences = 16", "eval_sequences = 16\nevaluations = 3", "'evaluations'"),
        ("checkpoint_every_seconds = 20", "checkpoint_every_seconds = 20\npool = 3", "'pool'"),
        ("block_size = 256", "block_size = 256\nblocks = 3", "'blocks'"),
        ("max_bytes = 20_000", "maximum_bytes = 3", "'maximum_bytes'"),
        ('base = "nano"', 'base = "nano"\nname = "mine"\nversion = "v1"\nwidth = 3', "'width'"),
        ("[place]", "[palce]\nstore = 3\n\n[place]", "'palce'"),
    ],
    ids=["scale", "place", "mixture", "source", "recipe", "section"],
)
def test_a_profile_with_an_unknown_field_is_refused_with_its_name(lab: Path, old: str, new: str, named: str) -> None:
    edit(lab, old, new)
    assert named in refused(lab, "plan", "--profile", "small.toml")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('base = "nano"', 'base = "pythia"', "unknown recipe 'pythia'; there are delphi, nano"),
        ('base = "nano"', 'base = "nano"\nmin_width = 24', "needs a name and a version of its own"),
        ("code = {", "poems = {", "source 'poems': field 'content' is missing"),
        ("validation_share = 0.04\n", "", "'validation_share'"),
        ("[place]", "[elsewhere]", "unknown section 'elsewhere'; there are scale and place"),
        ('packages = ["fsspec"]', 'packages = ["no-such-package"]', "'no-such-package' is not installed"),
        ("weights = { code = 1.0 }", "weights = { code = 0.5, prose = 0.5 }", "prose"),
        ('[scale.sources]\ncode = { packages = ["fsspec"], max_bytes = 20_000 }', "", "'sources'"),
        ("[scale.recipe]", "[[scale.recipe]]", "small.toml"),
        ("[scale.sources]", "[[scale.sources]]", "small.toml"),
        ("validation_share = 0.04", "validation_share = ", "small.toml"),
    ],
    ids=[
        "unknown recipe",
        "unnamed fork",
        "unknown source",
        "missing field",
        "missing section",
        "package not installed",
        "mixture of an undeclared source",
        "no sources",
        "recipe as a list",
        "sources as a list",
        "not TOML",
    ],
)
def test_a_profile_that_cannot_be_built_is_refused_in_one_line(lab: Path, old: str, new: str, named: str) -> None:
    edit(lab, old, new)
    assert named in refused(lab, "plan", "--profile", "small.toml")
