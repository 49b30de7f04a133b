"""`marin records`: what runs came to, and corrections that take nothing away."""

import dataclasses
import getpass
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from marin_core.cli import cli
from marin_core.errors import MarinError
from marin_core.records.correction import correction
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import commit_table, read_outcomes, record_correction, record_run, valid_outcomes
from marin_core.records.selection import parse_since
from tests.cli.small_lab import SmallLab, outcome

CELLS = "checkpoints/delphi"
SUCCEEDED = {"status": "succeeded", "exit_class": None, "reason": ""}
OUTCOMES = [
    outcome("a1", CELLS, "8e9-d0008", **SUCCEEDED, ended="2026-11-01T08:00:00+00:00"),
    outcome(
        "a1",
        CELLS,
        "8e9-d0024",
        exit_class=ExitClass.DIVERGED,
        reason="loss is nan",
        last_step=12,
        log_tail=("step 11: 4.2", "step 12: [nan]"),
        ended="2026-11-01T09:00:00+00:00",
    ),
    outcome(
        "b2", "raw/code", exit_class=ExitClass.INFRASTRUCTURE, reason="disk full", ended="2026-11-03T08:00:00+00:00"
    ),
    outcome(
        "b2", CELLS, "8e9-d0008", status="cancelled", exit_class=ExitClass.CANCELLED, ended="2026-11-04T08:00:00+00:00"
    ),
    outcome("c3", CELLS, "8e9-d0024", exit_class=ExitClass.OUT_OF_MEMORY, ended="2026-11-05T08:00:00+00:00"),
]
DIVERGED = OUTCOMES[1]


@pytest.fixture
def recorded(empty_lab: SmallLab) -> SmallLab:
    for run in ("a1", "b2", "c3"):
        record_run(empty_lab.store, run, [one for one in OUTCOMES if one.dagster_run == run])
    return empty_lab


def listed(lab: SmallLab, *arguments: str) -> list[str]:
    return [row["record"] for row in lab.json("records", *arguments)]


def named(*positions: int) -> list[str]:
    """The records of `OUTCOMES` at these positions."""
    return [OUTCOMES[position].record for position in positions]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], named(4, 3, 2, 1, 0)),
        (["--failed"], named(4, 3, 2, 1)),
        (["--class", "diverged"], named(1)),
        (["--class", "out-of-memory"], named(4)),
        (["--since", "2026-11-03"], named(4, 3, 2)),
        (["--since", "2026-11-04T08:00"], named(4, 3)),
        (["--asset", "raw/*"], named(2)),
        (["--partition", "8e9-d0008"], named(3, 0)),
        (["--run", "a"], named(1, 0)),
        (["--failed", "--asset", CELLS, "--partition", "8e9-d0024", "--limit", "1"], named(4)),
    ],
)
def test_filters_leave_what_they_say_newest_first(
    recorded: SmallLab, arguments: list[str], expected: list[str]
) -> None:
    assert listed(recorded, *arguments) == expected


def test_an_age_counts_from_now(empty_lab: SmallLab) -> None:
    now = datetime.now(UTC)
    ends = [(now - timedelta(days=days)).isoformat() for days in (1, 8)]
    found = [outcome(f"r{n}", "raw/code", ended=end) for n, end in enumerate(ends)]
    for one in found:
        record_run(empty_lab.store, one.dagster_run, [one])
    assert listed(empty_lab, "--since", "7d") == [found[0].record]
    assert listed(empty_lab, "--since", "2w") == [found[0].record, found[1].record]


@given(st.integers(0, 10_000), st.sampled_from("smhdw"))
def test_an_age_is_subtracted_in_its_unit(number: int, unit: str) -> None:
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[unit]
    assert (now - parse_since(f"{number}{unit}", now)).total_seconds() == number * seconds


@pytest.mark.parametrize("text", ["yesterday", "7", "d7", "7y", "2026-13-01", ""])
def test_what_is_no_time_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(MarinError, match="is no time; write an age like 7d or 12h, or a date like 2026-11-01"):
        parse_since(text, datetime.now(UTC))


def test_an_age_before_the_first_year_is_the_beginning() -> None:
    assert parse_since("9999999w", datetime.now(UTC)).year == 1


def test_the_json_of_a_record_is_the_record(recorded: SmallLab) -> None:
    rows = recorded.json("records")
    assert sorted((Outcome.from_json(row) for row in rows), key=lambda one: one.ended) == OUTCOMES


def test_people_see_the_reason_and_how_many_more_there_are(recorded: SmallLab) -> None:
    text = recorded.marin("records", "--limit", "4")
    assert re.search(rf"{DIVERGED.record} .*checkpoints/delphi \[8e9-d0024\] .*failed: diverged .*loss is nan", text)
    assert "1 more; --limit 5 shows all" in text


def test_an_empty_record_says_so(empty_lab: SmallLab) -> None:
    assert empty_lab.marin("records") == "no records\n"
    assert empty_lab.json("records") == []


def test_a_record_is_shown_whole_with_its_log_by_the_beginning_of_its_id(recorded: SmallLab) -> None:
    text = recorded.marin("records", "show", DIVERGED.record[:6])
    for shown in (DIVERGED.record, "loss is nan", "step 11: 4.2", "step 12: [nan]", "2026-11-01T09:00:00+00:00"):
        assert shown in text
    told = recorded.json("records", "show", DIVERGED.record)
    history = told.pop("history")
    assert told == DIVERGED.to_json()
    assert [one["record"] for one in history] == [DIVERGED.record]


def test_a_correction_stands_in_the_place_of_a_record_that_stays(recorded: SmallLab) -> None:
    told = recorded.json("records", "correct", DIVERGED.record[:8], "--class", "bug", "--note", "a wrong rate")
    right = Outcome.from_json(told)
    assert right == dataclasses.replace(
        DIVERGED, exit_class=ExitClass.BUG, corrects=DIVERGED.record, note="a wrong rate"
    )
    assert DIVERGED.record not in listed(recorded)
    assert right.record in listed(recorded)
    assert set(listed(recorded, "--history")) == {right.record, *named(0, 1, 2, 3, 4)}
    # The old one is as it was, byte for byte, and says by what it was corrected.
    shown = recorded.json("records", "show", DIVERGED.record)
    history = shown.pop("history")
    assert shown == DIVERGED.to_json()
    assert [(one["record"], one["by"]) for one in history] == [
        (DIVERGED.record, None),
        (right.record, getpass.getuser()),
    ]
    assert "a wrong rate" in recorded.marin("records", "show", right.record)


def test_a_correction_is_corrected_in_turn_and_each_only_once(recorded: SmallLab) -> None:
    first = recorded.json("records", "correct", DIVERGED.record, "--class", "bug", "--note", "one")["record"]
    with pytest.raises(MarinError, match=f"is corrected already by {first}; correct that one"):
        recorded.marin("records", "correct", DIVERGED.record, "--class", "preempted", "--note", "two")
    second = recorded.json("records", "correct", first, "--class", "diverged", "--note", "three")["record"]
    valid = {one.record for one in valid_outcomes(read_outcomes(recorded.store))}
    assert valid & {DIVERGED.record, first, second} == {second}
    history = recorded.json("records", "show", first)["history"]
    assert [one["record"] for one in history] == [DIVERGED.record, first, second]


def test_of_two_who_correct_a_record_at_the_same_time_the_second_is_told(recorded: SmallLab) -> None:
    """Both have seen it uncorrected."""
    mine, yours = (
        correction(DIVERGED, exit_class=exit_class, status=None, reason=None, note="looked again")
        for exit_class in (ExitClass.BUG, ExitClass.PREEMPTED)
    )
    record_correction(recorded.store, mine)
    with pytest.raises(MarinError, match=f"corrected meanwhile by {getpass.getuser()}.*not written.*{mine.record}"):
        record_correction(recorded.store, yours)
    assert [one["exit_class"] for one in recorded.json("records", "show", DIVERGED.record)["history"]] == [
        "diverged",
        "bug",
    ]
    record_correction(recorded.store, mine)


def test_a_list_does_not_repeat_in_its_reasons_what_failed(recorded: SmallLab) -> None:
    label = f"{CELLS} [8e9-d0040]"
    repeated = outcome("d4", CELLS, "8e9-d0040", reason=f"{label} diverged at step 3")
    other = outcome("d4", CELLS, "8e9-d0056", reason=f"{label} is not in the store")
    record_run(recorded.store, "d4", [repeated, other])
    text = recorded.marin("records", "--run", "d4")
    assert text.count(label) == 2
    assert "is not in the store" in text
    assert recorded.json("records", "--run", "d4", "--partition", "8e9-d0040")[0]["reason"] == repeated.reason


def test_a_record_whose_file_is_damaged_says_how_to_come_by_it_again(recorded: SmallLab) -> None:
    (damaged,) = [r for r in recorded.store.records("records/runs") if r.payload["config"] == {"dagster_run": "b2"}]
    path = f"{recorded.store.root}/records/runs/{damaged.fingerprint}/outcomes.parquet"
    Path(path).write_bytes(b"no")
    with pytest.raises(MarinError, match=f"{damaged.fingerprint}.* is gone or damaged.*materialize records/outcomes"):
        recorded.marin("records")


def test_what_people_type_is_one_line_that_steers_no_terminal(recorded: SmallLab) -> None:
    typed = ["--reason", "two\nlines", "--note", "\x1b[31mred\n note"]
    told = recorded.json("records", "correct", DIVERGED.record, *typed)
    assert (told["reason"], told["note"]) == ("two lines", "[31mred note")
    with pytest.raises(click.UsageError, match="give --note in words"):
        recorded.marin("records", "correct", told["record"], "--class", "bug", "--note", " ")


def test_what_chooses_from_the_list_is_refused_before_a_subcommand(recorded: SmallLab) -> None:
    with pytest.raises(click.UsageError, match="--failed is for the list"):
        recorded.marin("records", "--failed", "show", DIVERGED.record)


def test_corrections_and_their_history_outlive_the_table_of_all_records(recorded: SmallLab) -> None:
    corrected = recorded.json("records", "correct", DIVERGED.record, "--class", "bug", "--note", "one")["record"]
    before = recorded.json("records", "--history")
    commit_table(recorded.store)
    assert recorded.json("records", "--history") == before
    assert recorded.json("records", "show", corrected)["history"][1]["by"] == getpass.getuser()


@pytest.mark.parametrize(
    ("position", "options", "status", "exit_class"),
    [
        (1, ["--class", "cancelled"], "cancelled", ExitClass.CANCELLED),
        (1, ["--status", "cancelled"], "cancelled", ExitClass.CANCELLED),
        (1, ["--status", "succeeded"], "succeeded", None),
        (0, ["--class", "bug"], "failed", ExitClass.BUG),
        (3, ["--class", "preempted"], "failed", ExitClass.PREEMPTED),
        (1, ["--reason", "the rate was ten times too high"], "failed", ExitClass.DIVERGED),
    ],
)
def test_a_status_and_a_class_imply_each_other(
    recorded: SmallLab, position: int, options: list[str], status: str, exit_class: ExitClass | None
) -> None:
    told = recorded.json("records", "correct", OUTCOMES[position].record, *options, "--note", "looked again")
    right = Outcome.from_json(told)
    assert (right.status, right.exit_class) == (status, exit_class)


@pytest.mark.parametrize(
    ("position", "options", "said"),
    [
        (1, ["--status", "succeeded", "--class", "bug"], "what succeeded has no class"),
        (1, ["--status", "failed", "--class", "cancelled"], "what failed has a class other than 'cancelled'"),
        (0, ["--status", "failed"], "give one with --class"),
        (1, ["--status", "cancelled", "--class", "bug"], "what was cancelled has the class 'cancelled'"),
        (1, ["--class", "diverged"], "says that already"),
    ],
)
def test_contradictions_are_refused_and_nothing_is_written(
    recorded: SmallLab, position: int, options: list[str], said: str
) -> None:
    with pytest.raises(MarinError, match=re.escape(said)):
        recorded.marin("records", "correct", OUTCOMES[position].record, *options, "--note", "no")
    assert listed(recorded, "--history") == named(4, 3, 2, 1, 0)


def test_the_profile_may_be_named_before_a_subcommand(recorded: SmallLab, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(f'extends = "{recorded.profile}"\n[place]\nstore = "{recorded.store.root}"\n')
    environment = {"MARIN_PROFILE": "laptop", "MARIN_STORE": "", "MARIN_STATE": str(tmp_path / "state")}
    for arguments in (["--profile", str(other), "show"], ["show", "--profile", str(other)]):
        command = ["records", *arguments, DIVERGED.record, "--json"]
        result = CliRunner().invoke(cli, command, env=environment, catch_exceptions=False)
        assert json.loads(result.output)["reason"] == DIVERGED.reason


def test_an_unknown_or_ambiguous_record_is_refused(recorded: SmallLab) -> None:
    with pytest.raises(MarinError, match="no record begins with 'xyz'; `marin records` lists them"):
        recorded.marin("records", "show", "xyz")
    with pytest.raises(MarinError, match="5 records begin with ''"):
        recorded.marin("records", "show", "")
