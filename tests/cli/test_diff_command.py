"""`marin diff`: two runs side by side."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from marin_core.errors import MarinError
from marin_core.records.outcome import ExitClass
from marin_core.records.outcomes import record_run
from marin_core.store import ArtifactSpec
from tests.cli.small_lab import SmallLab, outcome
from tests.conftest import LabEnvironment


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def plan_of(run: ArtifactSpec) -> dict[str, Any]:
    return dict(leaves(run.config["plan"]))


def rows(section: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    return {row["field"]: (row["first"], row["second"]) for row in section}


@pytest.mark.parametrize("pair", [("8e9-d0024", "1.6e10-d0024"), ("8e9-d0008", "3.2e10-d0056")])
def test_two_cells_differ_in_exactly_the_fields_of_their_plans_that_do(
    whole_lab: SmallLab, pair: tuple[str, str]
) -> None:
    first, second = (plan_of(whole_lab.graph.cells[key]) for key in pair)
    told = whole_lab.json("diff", *pair)
    assert rows(told["config"]) == {n: (first[n], second[n]) for n in first if first[n] != second[n]}
    assert told["data"] == []
    assert told["first"]["fingerprint"] == whole_lab.graph.cells[pair[0]].fingerprint


def test_the_other_way_round_is_the_mirror_image(whole_lab: SmallLab) -> None:
    there = whole_lab.json("diff", "8e9-d0024", "1.6e10-d0040")
    back = whole_lab.json("diff", "1.6e10-d0040", "8e9-d0024")
    for section in ("config", "data", "code", "outcome"):
        mirrored = {name: (second, first) for name, (first, second) in rows(back[section]).items()}
        assert rows(there[section]) == mirrored


def test_a_run_does_not_differ_from_itself_but_all_shows_it(whole_lab: SmallLab) -> None:
    told = whole_lab.json("diff", "8e9-d0024", "8e9-d0024")
    assert [told[section] for section in ("config", "data", "code", "outcome")] == [[], [], [], []]
    everything = whole_lab.json("diff", "8e9-d0024", "8e9-d0024", "--all")
    plan = plan_of(whole_lab.graph.cells["8e9-d0024"])
    assert rows(everything["config"]) == {name: (value, value) for name, value in plan.items()}
    assert {"raw/code", "mixture/tiny"} <= rows(everything["data"]).keys()


def test_other_data_is_followed_to_the_source_that_differs(lab: SmallLab) -> None:
    old = lab.graph.cells["8e9-d0024"]
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    lab.commit(lab.graph.cells["8e9-d0024"])
    told = lab.json("diff", f"checkpoints/delphi@{old.fingerprint}", "8e9-d0024")
    assert told["config"] == []
    found = rows(told["data"])
    assert found["raw/code config.origin.max_bytes"] == (300_000, 400_000)
    made_of_it = {"raw/code", "normalized/code", "quality/code", "near_duplicates/code", "contamination/code"}
    assert {"mixture/tiny", "tokenizer/tiny", *made_of_it} <= found.keys()
    assert not {"raw/math", "normalized/prose", "raw/language_reference"} & found.keys()


def test_an_input_that_was_rebuilt_between_two_runs_is_a_difference(lab: SmallLab) -> None:
    mixture, later = lab.graph.mixture, lab.graph.cells["8e9-d0040"]
    before = lab.store.artifact(mixture).record.content
    after = lab.rebuild(mixture, "another order").content
    lab.rebuild(later, "read it anew")
    told = lab.json("diff", "8e9-d0024", "8e9-d0040")
    assert rows(told["data"]) == {
        mixture.name: (f"{mixture.fingerprint} {before}", f"{mixture.fingerprint} {after}"),
    }


def test_a_run_that_failed_is_known_by_its_record_and_its_plan(lab: SmallLab) -> None:
    run, other = lab.graph.cells["8e9-d0024"], lab.graph.cells["8e9-d0040"]
    lab.delete(run)
    lab.store.save_plan(run)
    failed = outcome(
        "r1",
        run.name,
        run.partition,
        fingerprint=run.fingerprint,
        exit_class=ExitClass.DIVERGED,
        reason="diverged at step 3: loss is nan",
        last_step=3,
    )
    record_run(lab.store, "r1", [failed])
    # The profile has moved on, so that nothing but the store knows the run.
    lab.edit("fit_budgets = [8e9, 1.6e10, 3.2e10]", "fit_budgets = [1.6e10, 3.2e10, 6.4e10]")
    told = lab.json("diff", failed.record, f"checkpoints/delphi@{other.fingerprint}")
    first, second = plan_of(run), plan_of(other)
    assert rows(told["config"]) == {n: (first[n], second[n]) for n in first if first[n] != second[n]}
    assert told["data"] == []
    assert rows(told["outcome"])["status"] == ("failed", "succeeded")
    assert rows(told["outcome"])["exit_class"] == ("diverged", None)
    assert rows(told["outcome"])["last_step"] == (3, None)
    assert (told["first"]["committed"], told["second"]["committed"]) == (False, True)
    text = lab.marin("diff", failed.record, f"checkpoints/delphi@{other.fingerprint}")
    assert "diverged at step 3: loss is nan" in text
    # By its partition too, as the last that is known of it.
    by_partition = lab.json("diff", "8e9-d0024", f"checkpoints/delphi@{other.fingerprint}")
    assert by_partition["config"] == told["config"]


def test_a_run_that_failed_before_another_succeeded_has_none_of_its_numbers(lab: SmallLab) -> None:
    run = lab.graph.cells["8e9-d0024"]
    failed = outcome("r1", run.name, run.partition, fingerprint=run.fingerprint, last_step=3)
    record_run(lab.store, "r1", [failed])
    lab.delete(run)
    lab.commit(run, {"eval_loss": 3.5})
    found = rows(lab.json("diff", failed.record, "8e9-d0024")["outcome"])
    assert found["status"] == ("failed", "succeeded")
    assert found["eval_loss"] == (None, 3.5)
    assert found["last_step"] == (3, None)


def test_a_run_that_diverged_has_committed_what_it_came_to(lab: SmallLab) -> None:
    run = lab.graph.cells["8e9-d0024"]
    lab.delete(run)
    lab.commit(run, {"status": "diverged", "steps": 40}, dagster_run="r1")
    fields = {"exit_class": ExitClass.DIVERGED, "fingerprint": run.fingerprint, "last_step": 39}
    record_run(lab.store, "r1", [outcome("r1", run.name, run.partition, **fields)])
    found = rows(lab.json("diff", "8e9-d0024", "8e9-d0040")["outcome"])
    assert (found["status"][0], found["exit_class"][0], found["steps"][0]) == ("failed", "diverged", 40)


def test_of_a_run_without_a_plan_its_outcome_is_all_there_is(lab: SmallLab) -> None:
    failed = outcome("r1", "checkpoints/delphi", "8e9-d0024", exit_class=ExitClass.INFRASTRUCTURE)
    record_run(lab.store, "r1", [failed])
    told = lab.json("diff", failed.record[:8], "8e9-d0024")
    assert rows(told["outcome"])["exit_class"] == ("infrastructure", None)
    assert {first for first, _ in rows(told["config"]).values()} == {None}


def test_a_recorded_outcome_stands_beside_the_artifacts_own_numbers(lab: SmallLab) -> None:
    run = lab.graph.cells["8e9-d0024"]
    fields = {"status": "succeeded", "exit_class": None, "reason": "", "fingerprint": run.fingerprint}
    record_run(lab.store, "r1", [outcome("r1", run.name, run.partition, **fields, preemptions=2, chip_hours=0.5)])
    found = rows(lab.json("diff", "8e9-d0024", "8e9-d0040")["outcome"])
    assert (found["preemptions"], found["chip_hours"]) == ((2, None), (0.5, None))
    assert "status" not in found


def test_a_run_of_an_experiment_goes_by_its_key(whole_lab: SmallLab) -> None:
    made = whole_lab.graph.experiments["adamh_against_adamw"]
    cells = {run.fingerprint for run in whole_lab.graph.cells.values()}
    (run, *_) = [run for runs in made.runs.values() for run in runs if run.fingerprint not in cells]
    told = whole_lab.json("diff", str(run.partition), "8e9-d0024")
    assert (told["first"]["fingerprint"], told["first"]["committed"]) == (run.fingerprint, False)
    assert rows(told["outcome"])["status"] == ("not built", "succeeded")


def test_what_is_no_run_is_refused_with_how_to_name_one(whole_lab: SmallLab) -> None:
    with pytest.raises(MarinError, match=r"no run '8e9-d9999'; name a partition \(8e9-d0008, .*`marin records` lists"):
        whole_lab.marin("diff", "8e9-d9999", "8e9-d0024")
    with pytest.raises(MarinError, match="no record begins with 'abcdef'"):
        whole_lab.marin("diff", "abcdef", "8e9-d0024")


def test_two_real_runs_differ_in_their_losses(finished_lab: LabEnvironment) -> None:
    result = finished_lab.run("marin", "diff", "8e9-d0024", "1.28e11-optimal", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    found = rows(json.loads(result.stdout)["outcome"])
    assert found["eval_loss"][0] > found["eval_loss"][1]
    assert {"tokens_per_second", "wall_seconds", "train_seconds"} <= found.keys()
