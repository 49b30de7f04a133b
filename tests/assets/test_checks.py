"""Every asset check: passed by a lab that is as it should be, and failed by one where something is really wrong."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from marin_assets.checks import models, runs, sources, suite, tokens
from marin_assets.checks.check import Check
from marin_assets.columns import TABLES
from marin_assets.definitions import build_definitions
from marin_assets.keys import artifact_name, asset_key
from marin_assets.lab import Lab
from marin_core.data.contamination.stage import MATCHES
from marin_core.data.near_duplicates.verdicts import _SCHEMA as DUPLICATES
from marin_core.data.quality.stage import VERDICTS
from marin_core.graph import CHECKPOINTS, EVALS, EXPORTS, LabGraph
from marin_core.profile import load_profile
from marin_core.store import ArtifactSpec
from tests.conftest import TINY_PROFILE, LabEnvironment

GRAPH = LabGraph.of(load_profile(str(TINY_PROFILE)))
CELL = next(iter(GRAPH.cells.values()))
CODE = GRAPH.sources["code"]


@pytest.fixture
def lab(finished_lab: LabEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A copy to damage, without the weights and token ids that no check reads."""
    copy = LabEnvironment(tmp_path / "lab")
    shutil.copytree(finished_lab.store, copy.store, ignore=shutil.ignore_patterns("d", "c"))
    for name, value in copy.variables.items():
        if name.startswith(("MARIN_", "DAGSTER_")):
            monkeypatch.setenv(name, value)
    return Lab(load_profile())


def folder(lab: Lab, spec: ArtifactSpec) -> Path:
    return Path(lab.store.root) / spec.name / spec.fingerprint


def edit(lab: Lab, spec: ArtifactSpec, **summary: Any) -> None:
    """Other numbers in the summary of a committed artifact."""
    path = folder(lab, spec) / "artifact.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "summary": {**record["summary"], **summary}}))


def replace(lab: Lab, spec: ArtifactSpec, file: str, data: bytes) -> None:
    """Another content of one of its files, as if that had been committed."""
    path = folder(lab, spec) / "artifact.json"
    record = json.loads(path.read_text())
    (path.parent / file).write_bytes(data)
    for entry in record["files"]:
        if entry["path"] == file:
            entry.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    path.write_text(json.dumps(record))


def edit_json(lab: Lab, spec: ArtifactSpec, file: str, change: Callable[[Any], object]) -> None:
    content = json.loads((folder(lab, spec) / file).read_text())
    change(content)
    replace(lab, spec, file, json.dumps(content).encode())


def edit_table(lab: Lab, spec: ArtifactSpec, file: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    path = folder(lab, spec) / file
    changed = path.with_suffix(".changed")
    change(pl.read_parquet(path)).write_parquet(changed)
    replace(lab, spec, file, changed.read_bytes())
    changed.unlink()


@dataclass(frozen=True)
class Damage:
    """`said` is in the check's one line when it has been done."""

    check: Check
    spec: ArtifactSpec
    do: Callable[[Lab], object]
    said: str


def heldout_run(lab: Lab) -> ArtifactSpec:
    return next(iter(lab.heldout_runs().values()))


def truncate(lab: Lab) -> None:
    path = folder(lab, CODE.stages["raw"]) / "files" / "documents.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def drop_rows(ledger: dict[str, Any]) -> None:
    ledger["shard_rows"] = dict.fromkeys(ledger["shard_rows"], 1)


def shift_shares(mixture: dict[str, Any]) -> None:
    mixture["stages"][0]["effective_shares"].update(code=0.45, math=0.25)


PART = "part-00000-of-00001.parquet"
TOKENIZED = GRAPH.tokenized["code"]
EVALUATED = GRAPH.evaluated(CELL)
RESULT = GRAPH.experiments["laptop_ladder"].result
SUITE, CURATED, QUALITY = GRAPH.suite, CODE.curated, CODE.stages["quality"]

DAMAGES: dict[str, Damage] = {
    "a raw file is cut off": Damage(
        sources.FILES_ARE_COMPLETE, CODE.stages["raw"], truncate, "files/documents.parquet"
    ),
    "a raw file is gone": Damage(
        sources.FILES_ARE_COMPLETE,
        CODE.stages["raw"],
        lambda lab: (folder(lab, CODE.stages["raw"]) / "files" / "documents.parquet").unlink(),
        "1 of 2 files are missing",
    ),
    "documents have no licence": Damage(
        sources.COLUMNS_ARE_THE_DECLARED_ONES,
        CURATED,
        lambda lab: edit_table(lab, CURATED, f"documents/{PART}", lambda t: t.drop("licence")),
        "id string, text string, source string;",
    ),
    "verdicts are numbers": Damage(
        sources.COLUMNS_ARE_THE_DECLARED_ONES,
        QUALITY,
        lambda lab: edit_table(lab, QUALITY, f"verdicts/{PART}", lambda t: t.with_columns(pl.col("keep").cast(int))),
        "keep int64",
    ),
    "a part is no table": Damage(
        sources.COLUMNS_ARE_THE_DECLARED_ONES,
        QUALITY,
        lambda lab: replace(lab, QUALITY, f"verdicts/{PART}", b"PAR1 and then nothing"),
        f"verdicts/{PART}",
    ),
    "a tokenizer lacks an entry": Damage(
        tokens.VOCABULARY_IS_AS_DECLARED,
        GRAPH.tokenizer,
        lambda lab: edit(lab, GRAPH.tokenizer, vocab_size=511),
        "it has 511 entries, the profile declares 512",
    ),
    "a summary has more tokens": Damage(
        tokens.TOKEN_TOTALS_AGREE, TOKENIZED, lambda lab: edit(lab, TOKENIZED, train_tokens=7), "train tokens: 7 by the"
    ),
    "a shard has fewer rows": Damage(
        tokens.TOKEN_TOTALS_AGREE,
        TOKENIZED,
        lambda lab: edit_json(lab, TOKENIZED, "train/shard_ledger.json", drop_rows),
        "1 by its parts",
    ),
    "a curated document was not tokenized": Damage(
        tokens.TOKEN_TOTALS_AGREE, TOKENIZED, lambda lab: edit(lab, CURATED, documents=10**6), "are not the 1000000"
    ),
    "a ledger is damaged": Damage(
        tokens.TOKEN_TOTALS_AGREE,
        TOKENIZED,
        lambda lab: (folder(lab, TOKENIZED) / "train" / "shard_ledger.json").write_text("{}"),
        "is damaged",
    ),
    "a component has another share": Damage(
        tokens.SHARES_ARE_AS_DECLARED,
        GRAPH.mixture,
        lambda lab: edit_json(lab, GRAPH.mixture, "mixture.json", shift_shares),
        "from sequence 0 code has 45.00%, nominal are 40.00%",
    ),
    "a loss is no number": Damage(
        runs.LOSS_IS_FINITE, CELL, lambda lab: edit(lab, CELL, status="diverged", eval_loss=None), "eval_loss is None"
    ),
    "a run stopped early": Damage(runs.FINAL_STEP_IS_REACHED, CELL, lambda lab: edit(lab, CELL, steps=3), "3 of "),
    "a loss curve lacks steps": Damage(
        runs.FINAL_STEP_IS_REACHED,
        CELL,
        lambda lab: edit_table(lab, CELL, "metrics.parquet", lambda t: t.head(5)),
        "the loss curve has 5 steps",
    ),
    "a run of the suite stopped early": Damage(
        runs.RUNS_ARE_COMPLETE, SUITE, lambda lab: edit(lab, CELL, steps=3), f"{CELL.partition} has 3 of "
    ),
    "a held-out run stopped early": Damage(
        runs.HELD_OUT_RUNS_ARE_COMPLETE, GRAPH.heldout, lambda lab: edit(lab, heldout_run(lab), steps=3), "has 3 of "
    ),
    "a run of the suite diverged": Damage(
        runs.RUNS_ARE_FINITE, SUITE, lambda lab: edit(lab, SUITE, diverged=["8e9-d0008"]), "diverged: 8e9-d0008"
    ),
    "an evaluation failed": Damage(
        models.EVALUATIONS_SUCCEEDED, EVALUATED, lambda lab: edit(lab, EVALUATED, failed=["arc"]), "failed: arc"
    ),
    "a score is worse than a guess": Damage(
        models.SCORES_ARE_SANE,
        EVALUATED,
        lambda lab: edit_table(lab, EVALUATED, "evals.parquet", lambda t: t.with_columns(value=pl.lit(9.0))),
        "is 9, a uniform guess takes 6.238",
    ),
    "text is for free": Damage(
        models.SCORES_ARE_SANE,
        EVALUATED,
        lambda lab: edit_table(lab, EVALUATED, "evals.parquet", lambda t: t.with_columns(value=pl.lit(0.0))),
        "no text is for free",
    ),
    "an accuracy is above 1": Damage(
        models.SCORES_ARE_SANE,
        EVALUATED,
        lambda lab: edit_table(
            lab, EVALUATED, "evals.parquet", lambda t: t.with_columns(value=pl.lit(1.5), unit=pl.lit("fraction"))
        ),
        "which is no fraction",
    ),
    "a score is of nothing": Damage(
        models.SCORES_ARE_SANE,
        EVALUATED,
        lambda lab: edit_table(lab, EVALUATED, "evals.parquet", lambda t: t.with_columns(examples=pl.lit(0))),
        "is of no examples",
    ),
    "a budget has no minimum": Damage(
        suite.MINIMA_ARE_INSIDE_THE_GRID,
        GRAPH.isoflop,
        lambda lab: edit(lab, GRAPH.isoflop, flagged={"8e9": "its minimum is at the edge"}),
        "8e9: its minimum is at the edge",
    ),
    "a forecast came after its run": Damage(
        suite.FORECAST_CAME_FIRST,
        GRAPH.verdict,
        lambda lab: edit_json(
            lab, GRAPH.verdict, "verdict.json", lambda v: v["verdicts"][0].update(registered_before_run=False)
        ),
        "registered after these runs had begun: 1.28e11-optimal",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_check_passes_until_something_is_wrong_and_then_says_what(name: str, lab: Lab) -> None:
    damage = DAMAGES[name]
    before = damage.check.result(lab, damage.spec)
    assert (before.passed, before.description) == (True, None)
    damage.do(lab)
    after = damage.check.result(lab, damage.spec)
    assert not after.passed
    assert damage.said in str(after.description)
    assert "\n" not in str(after.description)


@pytest.mark.parametrize("difference", [0.0, 0.02])
def test_an_export_reads_back_within_its_tolerance(difference: float, lab: Lab) -> None:
    export = GRAPH.export(CELL)
    crafted = folder(lab, export)
    record = json.loads((folder(lab, CELL) / "artifact.json").read_text())
    record.update(name=EXPORTS, fingerprint=export.fingerprint, payload=export.payload, files=[], inputs={})
    record["summary"] = {"max_abs_difference": difference, "tolerance": 0.01}
    crafted.mkdir(parents=True)
    (crafted / "artifact.json").write_text(json.dumps(record))
    found = models.EXPORT_READS_BACK.result(lab, export)
    assert found.passed == (difference == 0.0)
    assert found.metadata["tolerance"].value == 0.01


@pytest.mark.parametrize("registered", [True, False])
def test_an_experiment_was_registered_first_or_its_check_says_so(registered: bool, lab: Lab) -> None:
    assert RESULT is not None
    crafted = folder(lab, RESULT)
    record = json.loads((folder(lab, CELL) / "artifact.json").read_text())
    record.update(name=RESULT.name, fingerprint=RESULT.fingerprint, payload=RESULT.payload, files=[], inputs={})
    record["summary"] = {"registered_before_runs": registered}
    crafted.mkdir(parents=True)
    (crafted / "artifact.json").write_text(json.dumps(record))
    assert suite.EXPERIMENT_WAS_REGISTERED_FIRST.result(lab, RESULT).passed is registered


@pytest.mark.parametrize(
    ("task", "schema"),
    [
        ("judge_quality", VERDICTS),
        ("find_near_duplicates", pl.Schema(DUPLICATES)),
        ("find_contamination", MATCHES),
    ],
)
def test_the_declared_columns_are_those_that_the_stage_writes(task: str, schema: pl.Schema) -> None:
    assert set(TABLES[task].types) == set(schema)
    assert set(TABLES[task].meanings) == set(schema)


def test_every_check_of_the_main_job_was_looked_at_and_passed(finished_lab: LabEnvironment) -> None:
    """Of whatever is one asset; runs that the suite trains are looked at by the suite."""
    graph = build_definitions(load_profile(str(TINY_PROFILE))).resolve_asset_graph()
    made = {spec.name for spec in GRAPH.unpartitioned() if not spec.name.startswith(("experiments/", "publish/"))}
    with dg.DagsterInstance.from_config(str(finished_lab.folder / "dagster")) as instance:
        keys = [key for key in graph.asset_check_keys if artifact_name(key.asset_key) in made]
        latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    told = {(artifact_name(key.asset_key), key.name): latest.get(key) for key in keys}
    not_built = {"tokenized/language_reference"}
    missing = {name for (name, _), execution in told.items() if execution is None}
    assert missing <= not_built
    failed = {key for key, execution in told.items() if execution and execution.status.value != "SUCCEEDED"}
    assert failed == set()


def test_every_asset_with_a_table_or_a_run_has_a_check() -> None:
    graph = build_definitions(load_profile(str(TINY_PROFILE))).resolve_asset_graph()
    stages = ("raw", "normalized", "quality", "near_duplicates", "contamination", "curated", "tokenized")
    names = {*(f"{stage}/code" for stage in stages), "tokenizer/tiny", "mixture/tiny", CHECKPOINTS, EVALS, EXPORTS}
    names |= {f"delphi/{name}" for name in ("suite", "isoflop", "heldout", "verdict", "evals")}
    assert not [name for name in names if not graph.get(asset_key(name)).check_keys]


@pytest.fixture
def instance(lab: Lab) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_what_is_made_of_a_damaged_table_is_not_built(lab: Lab, instance: dg.DagsterInstance) -> None:
    DAMAGES["verdicts are numbers"].do(lab)
    result = materialize(instance, ["quality/code", "near_duplicates/code"])
    assert not result.success
    assert {event.step_key for event in result.all_events if event.is_step_start} == {"quality__code"}


def test_a_run_that_diverged_fails_its_check(lab: Lab, instance: dg.DagsterInstance) -> None:
    edit(lab, CELL, status="diverged", train_loss=None, eval_loss=None)
    result = materialize(instance, [CHECKPOINTS], str(CELL.partition))
    assert not result.success
    key = dg.AssetCheckKey(asset_key(CHECKPOINTS), "loss_is_finite")
    execution = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert execution.status.value == "FAILED"
    assert execution.event is not None
    evaluated = execution.event.get_dagster_event().asset_check_evaluation_data
    assert evaluated.metadata["partition"].value == CELL.partition


def materialize(
    instance: dg.DagsterInstance, names: list[str], partition: str | None = None
) -> dg.ExecuteInProcessResult:
    job = build_definitions().resolve_implicit_global_asset_job_def()
    selection = [asset_key(name) for name in names]
    return job.execute_in_process(
        instance=instance, asset_selection=selection, partition_key=partition, raise_on_error=False
    )
