"""`marin why`: down to the very field that changed."""

import dataclasses
import re
from typing import Any

import pytest

from marin_core.cli.causes import shown
from marin_core.errors import MarinError
from marin_core.records.outcome import ExitClass
from marin_core.records.outcomes import record_run
from marin_core.records.verdicts import ruling_of
from marin_core.tasks import TASKS
from tests.cli.small_lab import SmallLab, outcome
from tests.conftest import LabEnvironment


def changes(lab: SmallLab, *arguments: str) -> list[tuple[str, str, Any, Any]]:
    """Name, field, old and new value of each cause that is alike in all partitions."""
    found = lab.json("why", *arguments)["changes"]
    values = [{(str(v["old"]), str(v["new"])) for v in change["values"]} for change in found]
    assert [len(pairs) for pairs in values] == [1] * len(found)
    return [(c["name"], c["field"], c["values"][0]["old"], c["values"][0]["new"]) for c in found]


def test_what_is_committed_needs_nothing(whole_lab: SmallLab) -> None:
    told = whole_lab.json("why", "delphi/verdict")
    assert [one["state"] for one in told["artifacts"]] == ["committed"]
    assert (told["changes"], told["to_build"], told["training_runs"]) == ([], [], 0)
    record = whole_lab.store.artifact(whole_lab.graph.verdict).record
    line = whole_lab.marin("why", "delphi/verdict")
    assert line.startswith("delphi/verdict is committed: built " + record.provenance.ended[:10])
    assert line.count("\n") == 1


def test_what_was_never_built_says_so_and_what_it_takes(empty_lab: SmallLab) -> None:
    graph = empty_lab.graph
    told = empty_lab.json("why", "delphi/verdict")
    assert told["never_built"] == [graph.verdict.fingerprint]
    assert told["changes"] == []
    assert told["training_runs"] == len(graph.cells) + len(graph.heldout_partitions)
    assert {one["name"] for one in told["to_build"]} >= {"raw/code", "mixture/tiny", "delphi/verdict"}
    assert told["to_build"][-1]["name"] == "delphi/verdict"
    text = empty_lab.marin("why", "delphi/verdict")
    assert "because it was never built" in text
    runs = len(graph.cells) + len(graph.heldout_partitions)
    assert f"to build it: {len(told['to_build'])} artifacts, {runs} training runs with it" in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "max_bytes = 300_000",
            "max_bytes = 400_000",
            [("raw/code", "config.origin.max_bytes", 300_000, 400_000)],
        ),
        (
            "validation_share = 0.1",
            "validation_share = 0.2",
            [(f"tokenized/{name}", "config.validation_share", 0.1, 0.2) for name in ("code", "math", "prose")],
        ),
        (
            "sample_bytes = 100_000",
            "sample_bytes = 90_000",
            [("tokenizer/tiny", "config.sample_bytes", 100_000, 90_000)],
        ),
        (
            "weights = { code = 0.4, prose = 0.3",
            "weights = { code = 0.3, prose = 0.4",
            [
                ("mixture/tiny", "config.stages.0.weights.code", 0.4, 0.3),
                ("mixture/tiny", "config.stages.0.weights.prose", 0.3, 0.4),
            ],
        ),
        (
            "eval_sequences = 64",
            "eval_sequences = 32",
            [("checkpoints/delphi", "config.plan.eval_sequences", 64, 32)],
        ),
    ],
    ids=["source", "share", "tokenizer", "mixture", "plan"],
)
def test_it_names_exactly_the_fields_that_were_changed(
    lab: SmallLab, old: str, new: str, expected: list[tuple[str, str, Any, Any]]
) -> None:
    lab.edit(old, new)
    assert sorted(changes(lab, "delphi/suite")) == sorted(expected)


def test_the_way_from_the_asset_to_the_cause_is_told(lab: SmallLab) -> None:
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    (change,) = lab.json("why", "delphi/suite")["changes"]
    names = [step["name"] for step in change["through"]]
    assert names[:2] == ["checkpoints/delphi", "mixture/tiny"]
    assert change["through"][0]["count"] == len(lab.graph.cells)
    text = lab.marin("why", "delphi/suite")
    assert re.search(
        r"because checkpoints/delphi \(12 runs\) changed because mixture/tiny changed because .*raw/code changed:\n"
        r" +config.origin.max_bytes: 300000 -> 400000\n",
        text,
    )


def test_a_cause_is_named_although_what_changed_is_built_again_already(lab: SmallLab) -> None:
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    lab.commit(lab.graph.sources["code"].stages["raw"])
    assert changes(lab, "delphi/suite") == [("raw/code", "config.origin.max_bytes", 300_000, 400_000)]
    assert "raw/code" not in {one["name"] for one in lab.json("why", "delphi/suite")["to_build"]}


def test_changed_code_is_named_as_such(lab: SmallLab, monkeypatch: pytest.MonkeyPatch) -> None:
    version = TASKS["tokenize"].code_version
    monkeypatch.setitem(TASKS, "tokenize", dataclasses.replace(TASKS["tokenize"], code_version="next"))
    found = changes(lab, "mixture/tiny")
    assert found == [(f"tokenized/{name}", "code_version", version, "next") for name in ("code", "math", "prose")]
    assert f"the code that makes it changed: version {version} -> next" in lab.marin("why", "mixture/tiny")


def test_a_change_that_differs_between_partitions_has_the_values_of_each(lab: SmallLab) -> None:
    before = {key: run.config["plan"]["optimizer"]["epsilon"] for key, run in lab.graph.cells.items()}
    lab.edit("reference_tokens = 5e4", "reference_tokens = 6e4")
    after = {key: run.config["plan"]["optimizer"]["epsilon"] for key, run in lab.graph.cells.items()}
    found = {change["field"]: change for change in lab.json("why", "delphi/suite")["changes"]}
    values = found["config.plan.optimizer.epsilon"]["values"]
    assert {v["partition"]: (v["old"], v["new"]) for v in values} == {key: (before[key], after[key]) for key in before}
    assert "and differently in 11 more" in lab.marin("why", "delphi/suite")


def test_a_grown_ladder_is_the_reason_with_the_runs_that_are_new(lab: SmallLab) -> None:
    before = set(lab.graph.cells)
    lab.edit("fit_budgets = [8e9, 1.6e10, 3.2e10]", "fit_budgets = [8e9, 1.6e10, 3.2e10, 6.4e10]")
    new = set(lab.graph.cells) - before
    told = lab.json("why", "delphi/suite")
    added = {change["field"] for change in told["changes"] if change["values"][0]["old"] is None}
    assert added == {f"inputs.{key}" for key in new}
    assert told["training_runs"] == len(new)
    text = lab.marin("why", "delphi/suite")
    assert all(f"checkpoints/delphi [{key}]" in text for key in new)


def test_an_input_that_was_rebuilt_with_other_content_makes_it_stale(lab: SmallLab) -> None:
    rebuilt = lab.rebuild(lab.graph.sources["code"].stages["raw"], "another text")
    told = lab.json("why", "normalized/code")
    assert [one["state"] for one in told["artifacts"]] == ["stale"]
    assert [(r["role"], r["name"], r["built"]) for r in told["rebuilt"]] == [
        ("raw", "raw/code", rebuilt.provenance.ended)
    ]
    assert [one["name"] for one in told["to_build"]] == ["normalized/code"]
    assert "because its input raw was built again" in lab.marin("why", "normalized/code")


def test_a_committed_artifact_tells_what_below_it_is_not(lab: SmallLab) -> None:
    lab.delete(lab.graph.sources["code"].stages["raw"])
    told = lab.json("why", "delphi/suite")
    assert [one["state"] for one in told["artifacts"]] == ["committed"]
    assert [one["name"] for one in told["upstream_not_committed"]] == ["raw/code"]
    assert told["to_build"] == []
    assert "raw/code would be built again" in lab.marin("why", "delphi/suite")


def test_an_earlier_build_that_cannot_be_looked_into_is_said_to_be_gone(lab: SmallLab) -> None:
    gone = lab.graph.sources["code"].stages["raw"]
    lab.delete(gone)
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    assert f"its input raw was {gone.fingerprint}, which is gone from the store" in lab.marin("why", "normalized/code")


def test_without_a_partition_all_are_counted(lab: SmallLab) -> None:
    lab.delete(lab.graph.cells["8e9-d0024"])
    told = lab.json("why", "checkpoints/delphi")
    missing = [one["partition"] for one in told["artifacts"] if one["state"] == "missing"]
    assert "8e9-d0024" in missing
    assert set(missing) & set(lab.graph.cells) == {"8e9-d0024"}
    committed = len(lab.graph.cells) - 1
    assert f"{committed} committed, {len(missing)} missing" in lab.marin("why", "checkpoints/delphi")
    assert len(lab.json("why", "checkpoints/delphi", "--partition", "8e9-d0024")["artifacts"]) == 1


def test_a_build_that_was_cut_off_and_one_that_failed_are_told(lab: SmallLab) -> None:
    run = lab.graph.cells["8e9-d0024"]
    lab.delete(run)
    with lab.store.writer(run):
        pass
    failed = outcome(
        "r1",
        run.name,
        run.partition,
        fingerprint=run.fingerprint,
        exit_class=ExitClass.OUT_OF_MEMORY,
        reason="the kernel killed it",
    )
    record_run(lab.store, "r1", [failed])
    arguments = ("why", run.name, "--partition", str(run.partition))
    told = lab.json(*arguments)
    assert told["failures"] == [failed.record]
    assert [one["partition"] for one in told["attempts"]] == [run.partition]
    text = lab.marin(*arguments)
    assert "has not ended" in text
    assert "out of memory: the kernel killed it" in text
    assert f"marin records show {failed.record}" in text


def test_a_run_that_diverged_is_committed_and_says_so(lab: SmallLab) -> None:
    run = lab.graph.cells["8e9-d0024"]
    lab.delete(run)
    lab.commit(run, {"status": "diverged"})
    text = lab.marin("why", run.name, "--partition", str(run.partition))
    assert "is committed: built" in text
    assert "the run diverged" in text


@pytest.mark.parametrize(("new", "said"), [("0.2", "0.1 -> 0.2"), ("0.10000001", "0.1 -> 0.10000001")])
def test_numbers_are_short_but_never_look_alike(lab: SmallLab, new: str, said: str) -> None:
    lab.edit("validation_share = 0.1", f"validation_share = {new}")
    assert f"config.validation_share: {said}\n" in lab.marin("why", "tokenized/code")


def test_an_unknown_asset_is_refused_with_those_like_it(whole_lab: SmallLab) -> None:
    with pytest.raises(MarinError, match=r"no asset 'delphi/verdct'; there are delphi/verdict"):
        whole_lab.marin("why", "delphi/verdct")


def test_in_a_finished_lab_everything_that_the_command_made_is_committed(finished_lab: LabEnvironment) -> None:
    for name in ("delphi/verdict", "delphi/report", "delphi/suite"):
        result = finished_lab.run("marin", "why", name)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith(f"{name} is committed")


def test_a_report_that_tells_of_what_failed_is_the_one_that_is_meant(empty_lab: SmallLab) -> None:
    made, store = empty_lab.graph.experiments["adamh_against_adamw"], empty_lab.store
    assert made.result
    failed, unrelated = outcome("a1", made.result.name), outcome("a1", "raw/code")
    record_run(store, "a1", [failed, unrelated])
    empty_lab.commit(made.retrospective(ruling_of(store, made.experiment), [failed]))
    assert "is committed" in empty_lab.marin("why", "experiments/adamh_against_adamw/retrospective")
    record_run(store, "a2", [outcome("a2", made.result.name)])
    text = empty_lab.marin("why", "experiments/adamh_against_adamw/retrospective")
    assert "is missing" in text
    assert "config.failed" in text


def test_long_values_are_shown_where_they_differ() -> None:
    same = "a sentence that goes on and on " * 10
    before, after = shown(f"{same}old end", f"{same}new end").split(" -> ")
    assert "old end" in before
    assert "new end" in after
    assert max(map(len, (before, after))) <= 60
    assert shown("old " + same, "new " + same).startswith('"old a sentence')
