"""`marin verdict`: what people make of an experiment, kept with its history."""

import getpass
import re

import click
import pytest

from marin_core.errors import MarinError
from marin_core.records.experiment import Verdict
from marin_core.records.verdicts import ruling_of, rulings
from tests.cli.small_lab import SmallLab

LADDER = "laptop_ladder"


def test_the_latest_verdict_counts_and_all_stay(empty_lab: SmallLab) -> None:
    empty_lab.marin("verdict", LADDER, "promising", "The curves are convex.")
    empty_lab.marin("verdict", LADDER, "did not work", "The law is off by a tenth.")
    experiment = empty_lab.graph.experiments[LADDER].experiment
    counts = ruling_of(empty_lab.store, experiment)
    assert (counts.verdict, counts.conclusion, counts.by) == (
        Verdict.DID_NOT_WORK,
        "The law is off by a tenth.",
        getpass.getuser(),
    )
    told = empty_lab.json("verdict", LADDER)
    assert [one["verdict"] for one in told["history"]] == ["promising", "did not work"]
    assert told["history"] == [one.to_json() for one in rulings(empty_lab.store, LADDER)]
    assert (told["verdict"], told["in_file"]["verdict"]) == ("did not work", experiment.verdict.value)


def test_people_see_the_history_with_what_counts_marked(empty_lab: SmallLab) -> None:
    before = empty_lab.marin("verdict", LADDER)
    assert re.search(r"in the experiment's file: .*\(counts\)", before)
    empty_lab.marin("verdict", LADDER, "mixed", "One of two.")
    lines = empty_lab.marin("verdict", LADDER).splitlines()
    assert [line for line in lines if "(counts)" in line] == [line for line in lines if "mixed. One of two." in line]


def test_it_says_what_shows_the_verdict_next(empty_lab: SmallLab) -> None:
    text = empty_lab.marin("verdict", LADDER, "worked", "As forecast.")
    assert f"dagster asset materialize --select experiments/{LADDER}/retrospective,records/site" in text


@pytest.mark.parametrize("words", ["did not work", "did-not-work", "did_not_work", "Did Not Work"])
def test_a_verdict_may_be_typed_in_several_ways(empty_lab: SmallLab, words: str) -> None:
    assert empty_lab.json("verdict", LADDER, words, "No.")["verdict"] == "did not work"


def test_all_experiments_are_listed_with_whether_their_forecast_held(lab: SmallLab) -> None:
    result = lab.graph.experiments[LADDER].result
    assert result is not None
    lab.commit(result, {"forecast_held": True})
    lab.marin("verdict", LADDER, "worked", "As forecast.")
    told = {row["experiment"]: row for row in lab.json("verdict")}
    assert set(told) == set(lab.graph.experiments)
    assert (told[LADDER]["verdict"], told[LADDER]["forecast_held"]) == ("worked", True)
    others = [row["forecast_held"] for id_, row in told.items() if id_ != LADDER]
    assert others == [None] * len(others)
    text = lab.marin("verdict")
    assert re.search(rf"{LADDER} +worked +held +As forecast\.", text)


def test_a_result_of_an_earlier_build_tells_too(lab: SmallLab) -> None:
    result = lab.graph.experiments[LADDER].result
    assert result is not None
    lab.commit(result, {"forecast_held": False})
    lab.edit("max_bytes = 300_000", "max_bytes = 400_000")
    assert lab.json("verdict", LADDER)["forecast_held"] is False


def test_unknown_experiments_and_verdicts_are_refused_with_the_known_ones(empty_lab: SmallLab) -> None:
    with pytest.raises(MarinError, match=rf"no experiment 'ladder'; there are .*{LADDER}"):
        empty_lab.marin("verdict", "ladder", "worked", "x")
    with pytest.raises(MarinError, match="no verdict 'splendid'; there are worked, promising, mixed, did not work"):
        empty_lab.marin("verdict", LADDER, "splendid", "x")
    assert rulings(empty_lab.store) == []


@pytest.mark.parametrize("conclusion", [[], [" "]])
def test_a_verdict_without_a_conclusion_is_refused(empty_lab: SmallLab, conclusion: list[str]) -> None:
    with pytest.raises(click.UsageError, match="a verdict has a conclusion in one line"):
        empty_lab.marin("verdict", LADDER, "worked", *conclusion)
    assert rulings(empty_lab.store) == []
