"""What the web UI calls stale is what `marin plan` would build again."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from marin_assets.definitions import build_definitions
from marin_assets.keys import artifact_name, asset_key
from marin_core import tasks
from marin_core.graph import CHECKPOINTS, EVALS, LabGraph
from marin_core.profile import Profile, load_profile
from marin_core.records.declared import declared_experiments
from marin_core.status import State, StatusReader
from marin_core.store import ArtifactSpec, Store
from tests.conftest import TINY_PROFILE, LabEnvironment

Cell = tuple[str, str | None]

# An asset that nothing was ever made of is missing, which is no staleness; these are not made by the main job.
NOT_MADE = {"exports/delphi", "publish/delphi", "publish/dataset", "tokenized/language_reference", "plan/checkpoint"}


@pytest.fixture(scope="module")
def lab(finished_lab: LabEnvironment, tmp_path_factory: pytest.TempPathFactory) -> LabEnvironment:
    """A lab with experiments as well."""
    folder = tmp_path_factory.mktemp("stale") / "lab"
    shutil.copytree(finished_lab.folder, folder, ignore=shutil.ignore_patterns("logs", "scratch"))
    made = LabEnvironment(folder)
    result = made.materialize("experiments/laptop_ladder/registration,experiments/laptop_ladder/result")
    assert result.returncode == 0, result.stderr
    return made


def changed(folder: Path, text: str) -> Profile:
    """The tiny profile with a change: a table of `text` replaces that of the same name."""
    path = folder / "changed.toml"
    path.write_text(f'extends = "{TINY_PROFILE}"\n{text}')
    return load_profile(str(path))


def shown(lab: LabEnvironment, profile: Profile) -> dict[Cell, StaleStatus]:
    """What the web UI says of every asset and partition that the main job makes."""
    graph = build_definitions(profile).resolve_asset_graph()
    with dg.DagsterInstance.from_config(str(lab.folder / "dagster")) as instance:
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        found = {}
        for key in graph.get_all_asset_keys():
            name, partitions = artifact_name(key), graph.get(key).partitions_def
            for partition in partitions.get_partition_keys() if partitions else [None]:
                found[name, partition] = resolver.get_status(key, partition)
    return {cell: status for cell, status in found.items() if is_compared(*cell)}


def is_compared(name: str, partition: str | None) -> bool:
    if name in NOT_MADE or name.startswith("records/"):
        return False
    return not name.startswith("experiments/") or name in EXPERIMENT


EXPERIMENT = {f"experiments/laptop_ladder/{part}" for part in ("registration", "result")}


def planned(lab: LabEnvironment, profile: Profile) -> dict[Cell, StaleStatus]:
    """What `marin plan` says of the same, in the words of the web UI. An asset is fresh if nothing is to be made of all
    that materializing it makes: the suite trains cells, and evaluations belong to the asset that collects them."""
    graph, store = LabGraph.of(profile), Store(str(lab.store))
    reader = StatusReader(store)
    makes: dict[Cell, list[ArtifactSpec]] = {(spec.name, None): [spec] for spec in graph.unpartitioned()}
    heldout = graph.heldout_runs(store) if store.current(graph.forecast) else {}
    runs = graph.cells | heldout
    evaluated = {key: [graph.evaluated(run), *graph.evaluations(run).values()] for key, run in runs.items()}
    makes |= {(CHECKPOINTS, key): [run] for key, run in runs.items()}
    makes |= {(EVALS, key): specs for key, specs in evaluated.items()}
    makes["delphi/suite", None] += graph.cells.values()
    makes["delphi/heldout", None] += heldout.values()
    makes["delphi/evals", None] += [spec for specs in evaluated.values() for spec in specs]
    return {cell: told(reader, specs) for cell, specs in makes.items() if is_compared(*cell)}


def told(reader: StatusReader, specs: list[ArtifactSpec]) -> StaleStatus:
    if all(reader.status(spec).state is State.COMMITTED for spec in specs):
        return StaleStatus.FRESH
    earlier = {record.partition for record in Store(reader._store.root).records(specs[0].name)}  # type: ignore[union-attr]
    return StaleStatus.STALE if specs[0].partition in earlier else StaleStatus.MISSING


def compared(lab: LabEnvironment, profile: Profile) -> set[str]:
    """The assets that are stale or missing, after both have been seen to say the same."""
    in_ui, in_plan = shown(lab, profile), planned(lab, profile)
    # Without its forecast nobody knows which model a held-out run is: the plan says nothing of it.
    assert {cell: in_ui[cell] for cell in in_plan} == in_plan
    return {name for (name, _), status in in_ui.items() if status is not StaleStatus.FRESH}


def test_after_the_main_job_nothing_is_stale(lab: LabEnvironment) -> None:
    profile = load_profile(str(TINY_PROFILE))
    assert compared(lab, profile) == set()


CHANGES: Mapping[str, str] = {
    "a setting of the tokenizer": '[scale.tokenizer]\nname = "tiny"\nvocab_size = 512\nsample_bytes = 90_000\n',
    "the curation of a source": """[scale.sources]
code = { packages = ["fsspec"], max_bytes = 300_000 }
prose = { packages = ["optax", "polars"], max_bytes = 600_000 }
math = { packages = ["optax"], max_bytes = 200_000, curation = { min_retention = 0.5, near_duplicates = false } }
language_reference = {}
""",
    "another budget": "[scale]\nfit_budgets = [8e9, 1.6e10, 3.2e10, 6.4e10]\n",
    "the evaluation of runs": "[scale]\neval_sequences = 32\n",
    "another constant of the recipe": TINY_PROFILE.read_text()[
        TINY_PROFILE.read_text().index("[scale.recipe]") : TINY_PROFILE.read_text().index("[scale.sources]")
    ].replace("eval_batch_size = 8", "eval_batch_size = 4"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_profile_makes_stale_what_the_plan_would_build(
    change: str, lab: LabEnvironment, tmp_path: Path
) -> None:
    profile = changed(tmp_path, CHANGES[change])
    assert compared(lab, profile)


def test_another_budget_leaves_the_runs_of_the_others_alone(lab: LabEnvironment, tmp_path: Path) -> None:
    statuses = shown(lab, changed(tmp_path, CHANGES["another budget"]))
    cells = LabGraph.of(load_profile(str(TINY_PROFILE))).cells
    assert {statuses[CHECKPOINTS, key] for key in cells} == {StaleStatus.FRESH}
    added = {key for (name, key), status in statuses.items() if name == CHECKPOINTS and status is StaleStatus.MISSING}
    assert added
    assert all(str(key).startswith("6.4e10") for key in added)
    assert statuses["delphi/suite", None] is StaleStatus.STALE


@pytest.mark.parametrize("task", ["fit_isoflop", "collect_evals", "train"])
def test_other_code_makes_stale_what_it_makes(task: str, lab: LabEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, task, replace(tasks.TASKS[task], code_version="other"))
    profile = load_profile(str(TINY_PROFILE))
    assert compared(lab, profile)


def test_another_hypothesis_makes_its_experiment_stale(lab: LabEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = [replace(one, hypothesis="It is otherwise.") for one in declared_experiments()]
    monkeypatch.setattr("marin_core.graph.declared_experiments", lambda: tuple(declared))
    profile = load_profile(str(TINY_PROFILE))
    assert compared(lab, profile) == EXPERIMENT


@pytest.mark.parametrize("name", ["curated/math", "mixture/tiny", "delphi/isoflop", "checkpoints/delphi"])
def test_what_was_rebuilt_with_other_content_makes_its_readers_stale(
    name: str, lab: LabEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = LabEnvironment(tmp_path / "lab")
    shutil.copytree(lab.folder / "dagster", copy.folder / "dagster")
    shutil.copytree(lab.store, copy.store, ignore=shutil.ignore_patterns("d"))
    for variable, value in copy.variables.items():
        if variable.startswith(("MARIN_", "DAGSTER_")):
            monkeypatch.setenv(variable, value)
    profile = load_profile()
    graph = LabGraph.of(profile)
    spec = next(s for s in (*graph.unpartitioned(), *graph.cells.values()) if s.name == name)
    path = copy.store / name / spec.fingerprint / "artifact.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "content": "of another build"}))
    # The web UI knows of it once somebody materialized it: a store that changes by itself it does not watch.
    with dg.DagsterInstance.from_config(str(copy.folder / "dagster")) as instance:
        job = build_definitions(profile).resolve_implicit_global_asset_job_def()
        made = job.execute_in_process(
            instance=instance, asset_selection=[asset_key(name)], partition_key=spec.partition, raise_on_error=False
        )
        assert made.success
    assert compared(copy, profile)
