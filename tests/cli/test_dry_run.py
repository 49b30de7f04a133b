"""`marin plan --dry-run` as a person or a script runs it: offline, on stores that a test fills by hand."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin_core.graph import CHECKPOINTS, EVALS
from marin_core.profile import load_profile
from marin_core.recipes import Candidate
from marin_core.store import ArtifactSpec, Store
from tests.cli.test_plan_command import PROFILE, graph_of, marin

# The published suite on a cluster that has no store and no image yet.
CLUSTER = """
extends = "delphi"

[place]
data_pool = "cpu-4"
data_ranks = 8
suite_pool = "v5p-16"
heldout_pool = "v5p-128"
eval_pool = "v5p-8"
assumed_mfu = 0.5
prices = { v5p = 4.0 }

[place.kubernetes]
namespace = "lab"
region = "us-east5"
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with two profiles: `small.toml` on this machine, `cluster.toml` on a cluster."""
    (tmp_path / "small.toml").write_text(PROFILE)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    return tmp_path


def dry_run(lab: Path, profile: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return marin(lab, "plan", "--dry-run", "--profile", profile, *arguments, **environment)


def found(lab: Path, profile: str, **environment: str) -> dict[str, Any]:
    result = dry_run(lab, profile, "--json", **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def jobs_of(lab: Path, profile: str) -> list[str]:
    return [job["artifact"] for job in found(lab, profile)["jobs"]]


def change(lab: Path, old: str, new: str) -> None:
    text = (lab / "cluster.toml").read_text()
    assert old in text
    (lab / "cluster.toml").write_text(text.replace(old, new))


def commit_all(lab: Path, spec: ArtifactSpec, forecast: Candidate) -> None:
    """Commit an artifact and before it whatever it is made of; the forecast names a candidate's run."""
    store = Store(str(lab / "state" / "store"))
    if store.record(spec.name, spec.fingerprint) is not None:
        return
    for upstream in spec.inputs.values():
        commit_all(lab, upstream, forecast)
    with store.writer(spec) as writer:
        with writer.open("forecast.json") as file:
            run = {"flops": forecast.flops, "hidden_dim": forecast.hidden_dim}
            file.write(json.dumps({"forecasts": [{"flops": forecast.flops, "run": run}]}).encode())
        writer.commit({})


def test_an_empty_store_needs_every_data_stage_every_run_and_the_held_out_run(lab: Path) -> None:
    graph = graph_of(lab)
    rest = ("mixture/", "delphi/", "publish/", "experiments/")
    stages = {spec.name for spec in graph.unpartitioned() if not spec.name.startswith(rest)}
    runs = {spec.label for spec in graph.cells.values()}
    evaluations = {spec.label for run in graph.cells.values() for spec in graph.evaluations(run).values()}
    jobs = jobs_of(lab, "small.toml")
    assert set(jobs[:-1]) == stages | runs | evaluations
    assert len(jobs) == len(stages) + len(runs) + len(evaluations) + 1
    assert jobs[-1] == "checkpoints/delphi [3.2e12-optimal]"


def test_what_is_committed_needs_no_job(lab: Path) -> None:
    graph = graph_of(lab)
    before = jobs_of(lab, "small.toml")
    first, *_ = graph.cells.values()
    commit_all(lab, first, next(iter(graph.candidates.values())))
    # A run is made from every data stage of this profile.
    left = [job for job in before if job.startswith((CHECKPOINTS, EVALS)) and job != first.label]
    assert jobs_of(lab, "small.toml") == left


def test_after_the_forecast_the_held_out_run_is_the_one_that_it_names(lab: Path) -> None:
    graph = graph_of(lab)
    chosen = graph.scale.recipe.candidates(graph.scale.heldout_budgets[0])[0]
    commit_all(lab, graph.forecast, chosen)
    commit_all(lab, graph.evals, chosen)
    (run,) = graph.heldout_runs(Store(str(lab / "state" / "store"))).values()
    (job,) = found(lab, "small.toml")["jobs"]
    assert (job["artifact"], job["tokens"]) == (run.label, chosen.tokens)
    assert job["job"] is not None
    commit_all(lab, run, chosen)
    result = dry_run(lab, "small.toml")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "nothing is missing: no job would be submitted"


def test_looking_writes_nothing(lab: Path) -> None:
    dry_run(lab, "small.toml")
    dry_run(lab, "cluster.toml", "--manifests")
    assert sorted(path.name for path in lab.iterdir()) == ["cluster.toml", "small.toml"]


def test_the_suite_on_tpus_has_chips_hours_and_cost_per_run_and_in_total(lab: Path) -> None:
    answer = found(lab, "cluster.toml")
    runs = [job for job in answer["jobs"] if job["flops"]]
    heldout = runs[78:]
    assert [(run["artifact"].split()[1], run["tokens"]) for run in heldout] == [
        *((f"[1e21-optimal-s{seed}]", 46_256_881_664) for seed in (0, 42, 62746)),
        *((f"[1e22-optimal-s{seed}]", 160_369_213_440) for seed in (0, 42, 62746)),
        ("[1e23-optimal]", 628_172_521_472),
    ]
    assert {(run["pool"], run["chips"]) for run in heldout} == {("v5p-128", 64)}
    hours = 3e20 / (8 * 459e12 * 0.5) / 3600
    (large,) = [run for run in runs if run["artifact"] == "checkpoints/delphi [3e20-d2304]"]
    assert (large["pool"], large["chips"], large["tokens"]) == ("v5p-16", 8, 18_617_466_880)
    assert large["hours"] == pytest.approx(hours)
    assert large["cost"] == pytest.approx(4.0 * 8 * hours)
    totals = answer["totals"]
    assert (totals["runs"], totals["chips_at_once"]) == (85, 78 * 8)
    assert totals["flops"] == pytest.approx(sum(run["flops"] for run in runs))
    # All runs of the suite at once, then the held-out runs.
    assert totals["hours"] == pytest.approx(hours + heldout[-1]["hours"])
    assert totals["cost"] == pytest.approx(sum(run["cost"] for run in runs))
    stages = [job for job in answer["jobs"] if not job["flops"]]
    assert {(job["pool"], job["chips"]) for job in stages if job["artifact"].startswith("tokenized/")} == {
        ("cpu-4", 32)
    }
    assert [job["chips"] for job in stages if job["artifact"].startswith("tokenizer/")] == [4]


def test_a_profile_without_a_store_is_answered_as_if_everything_were_missing_and_says_so(lab: Path) -> None:
    lines = dry_run(lab, "cluster.toml").stdout.splitlines()
    assert lines[1] == "everything counts as missing: no store is set; set MARIN_STORE, or store in [place]"


def test_a_store_that_cannot_be_read_is_named_with_the_cause(lab: Path) -> None:
    answer = found(lab, "cluster.toml", MARIN_STORE="gs://nowhere/lab", GOOGLE_APPLICATION_CREDENTIALS="missing.json")
    assert answer["store_unreachable"].startswith("store gs://nowhere/lab cannot be read: File missing.json was not ")
    assert answer["totals"]["runs"] == 85


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_not_waited_for_as_long_as_its_client_would(lab: Path) -> None:
    # Nothing listens on the discard port; the client library would go on trying for minutes.
    answer = found(lab, "cluster.toml", MARIN_STORE="gs://nowhere/lab", STORAGE_EMULATOR_HOST="http://127.0.0.1:9")
    assert answer["store_unreachable"] == "store gs://nowhere/lab did not answer within 10 s"
    assert answer["totals"]["runs"] == 85


def test_the_table_states_what_its_figures_rest_on(lab: Path) -> None:
    result = dry_run(lab, "cluster.toml")
    assert (result.returncode, result.stderr) == (0, "")
    assert "at a model FLOPs utilization of 0.5 (assumed_mfu)" in result.stdout
    assert "not known before the forecast, estimated by the models that the published law chooses" in result.stdout
    (row,) = [line for line in result.stdout.splitlines() if "checkpoints/delphi [3e20-d1280]" in line]
    assert "103.2! / 95" in row
    assert "! the published launches would have taken a larger slice" in result.stdout


def test_runs_that_do_not_fit_are_refused_one_by_one(lab: Path) -> None:
    change(lab, 'suite_pool = "v5p-16"', 'suite_pool = "v5e-4"')
    result = dry_run(lab, "cluster.toml")
    assert result.returncode == 1
    *refusals, summary = result.stderr.splitlines()
    (largest,) = [refusal for refusal in refusals if "[3e20-d4096]" in refusal]
    assert largest == (
        "refused: checkpoints/delphi [3e20-d4096] does not fit v5litepod-4: it needs at least 43.4 GiB of HBM per "
        "chip, which has 16; the smallest v5e that does is v5litepod-16"
    )
    assert not any("[3e18-d0512]" in refusal for refusal in refusals)
    assert summary.startswith(f"Error: {len(refusals)} refusals")


def test_a_held_out_pool_that_is_too_small_is_refused_before_the_forecast(lab: Path) -> None:
    change(lab, 'heldout_pool = "v5p-128"', 'heldout_pool = "v6e-8"')
    result = dry_run(lab, "cluster.toml", "--json")
    assert result.returncode == 1
    refusals = json.loads(result.stdout)["refusals"]
    assert len(refusals) == 7
    assert refusals[0].startswith("checkpoints/delphi [1e21-optimal-s0] does not fit v6e-8")


def test_a_suite_beyond_max_flops_is_refused_unless_the_environment_lifts_it(lab: Path) -> None:
    change(lab, "assumed_mfu = 0.5", "assumed_mfu = 0.5\nmax_flops = 1e21")
    result = dry_run(lab, "cluster.toml")
    assert result.returncode == 1
    assert result.stderr.splitlines()[:2] == [
        "refused: these 78 runs need 7.84e21 training FLOPs, more than the 1e21 of max_flops in [place]; raise it, "
        "or for this once set MARIN_MAX_FLOPS=7.9e21",
        "refused: these 7 runs need 1.33e23 training FLOPs, more than the 1e21 of max_flops in [place]; raise it, "
        "or for this once set MARIN_MAX_FLOPS=1.4e23",
    ]
    assert dry_run(lab, "cluster.toml", MARIN_MAX_FLOPS="1.4e23").returncode == 0


def test_a_max_flops_that_is_no_number_is_refused(lab: Path) -> None:
    result = dry_run(lab, "small.toml", MARIN_MAX_FLOPS="lots")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: MARIN_MAX_FLOPS is 'lots', which is no positive number of FLOPs")


def test_manifests_are_one_yaml_document_a_job_on_stdout_alone(lab: Path) -> None:
    result = dry_run(lab, "cluster.toml", "--manifests")
    assert result.returncode == 0
    bodies = list(yaml.load_all(result.stdout, yaml.CSafeLoader))
    # The held-out run has no name before the forecast.
    named = [job["job"] for job in found(lab, "cluster.toml")["jobs"] if job["job"]]
    assert [body["metadata"]["name"] for body in bodies] == named
    assert {body["kind"] for body in bodies} == {"Job", "JobSet"}
    assert "&id" not in result.stdout
    assert "at a model FLOPs utilization" in result.stderr


def test_processes_on_this_machine_have_no_manifests(lab: Path) -> None:
    result = dry_run(lab, "small.toml", "--manifests")
    assert (result.returncode, result.stdout) == (1, "")
    assert "profile small has no [place.kubernetes]" in result.stderr


def test_manifests_are_asked_for_with_a_dry_run(lab: Path) -> None:
    result = marin(lab, "plan", "--manifests", "--profile", "small.toml")
    assert result.returncode == 2
    assert "give both" in result.stderr


def test_the_laptop_s_own_profiles_can_be_asked(lab: Path) -> None:
    for name in ("laptop", "delphi"):
        assert load_profile(name).place.kubernetes is None
        assert found(lab, name)["refusals"] == []
