"""The commands about records on a store that is a bucket: what they say is what they say of a disk."""

from pathlib import Path
from typing import Any

import pytest

from marin_core.records.outcome import ExitClass
from marin_core.records.outcomes import record_run
from tests.cli.small_lab import SmallLab, outcome

pytestmark = pytest.mark.slow
RUN = "8e9-d0024"


def filled(lab: SmallLab) -> SmallLab:
    """One run that is committed, and one that diverged."""
    lab.commit(lab.graph.cells[RUN])
    other = lab.graph.cells["8e9-d0040"]
    lab.store.save_plan(other)
    failed = outcome(
        "r1", other.name, other.partition, fingerprint=other.fingerprint, exit_class=ExitClass.OUT_OF_MEMORY
    )
    record_run(lab.store, "r1", [failed])
    return lab


def answers(lab: SmallLab) -> dict[str, Any]:
    """What the commands say, without when and where."""
    (record,) = [row["record"] for row in lab.json("records", "--failed")]
    lineage = lab.json("lineage", "checkpoints/delphi", "--partition", RUN)
    why = lab.json("why", "checkpoints/delphi")
    diff = lab.json("diff", RUN, record)
    corrected = lab.json("records", "correct", record, "--class", "bug", "--note", "looked again")
    lab.marin("verdict", "laptop_ladder", "mixed", "One of two.")
    return {
        "lineage": [(one["name"], one["fingerprint"], one["inputs"]) for one in lineage["artifacts"]],
        "why": [why["artifacts"], why["to_build"], why["failures"]],
        "diff": [diff["config"], [row for row in diff["outcome"] if row["field"] in ("status", "exit_class")]],
        "records": [corrected, lab.json("records", "--history")],
        "verdict": [(one["verdict"], one["conclusion"]) for one in lab.json("verdict", "laptop_ladder")["history"]],
    }


def test_the_answers_are_those_of_a_disk(tmp_path: Path, gcs_root: str) -> None:
    for name in ("disk", "bucket"):
        (tmp_path / name).mkdir()
    on_disk = answers(filled(SmallLab.make(tmp_path / "disk")))
    on_bucket = answers(filled(SmallLab.make(tmp_path / "bucket", gcs_root)))
    assert on_bucket == on_disk
    assert len(on_disk["lineage"]) > 20
