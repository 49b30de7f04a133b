"""The table of all outcomes, and what is read beside it."""

from pathlib import Path

from marin_core.records.committed import commit_record
from marin_core.records.outcomes import TABLE, commit_table, read_outcomes, record_run
from marin_core.store import Store
from tests.cli.small_lab import outcome


def test_what_was_recorded_while_a_table_was_made_is_read_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for run in ("first", "second"):
        record_run(store, run, [outcome(run, "delphi/suite")])
    complete = store.opened(commit_table(store)).read("outcomes.parquet")
    # One that has a row of a run which it does not know to be in it.
    commit_record(store, TABLE, {"holds": "none"}, {"outcomes.parquet": complete, "holds.json": b"[]"}, {})
    assert sorted(row.dagster_run for row in read_outcomes(store)) == ["first", "second"]
