"""What people concluded, in the store: one artifact `records/verdicts` each time somebody says so."""

import json
from dataclasses import dataclass
from typing import Any

from marin_core.records.committed import commit_record
from marin_core.records.experiment import Experiment, Verdict
from marin_core.store import ArtifactRecord, Store
from marin_core.store.store import utc_now

VERDICTS = "records/verdicts"
_FILE = "verdict.json"


@dataclass(frozen=True)
class Ruling:
    """A verdict with its line of conclusion. `said` is when, ISO 8601 in UTC, `by` who; both None of one that stands in
    the experiment's file."""

    experiment: str
    verdict: Verdict
    conclusion: str
    said: str | None = None
    by: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "verdict": self.verdict.value,
            "conclusion": self.conclusion,
            "said": self.said,
            "by": self.by,
        }


def record_ruling(
    store: Store, experiment: str, verdict: Verdict, conclusion: str, by: str, command: str | None = None
) -> ArtifactRecord:
    """Write a verdict down. Earlier ones stay; the latest counts."""
    ruling = Ruling(experiment, verdict, conclusion, utc_now(), by)
    data = json.dumps(ruling.to_json(), indent=2).encode()
    summary = {"experiment": experiment, "verdict": verdict.value, "conclusion": conclusion}
    return commit_record(store, VERDICTS, ruling.to_json(), {_FILE: data}, summary, command)


def rulings(store: Store, experiment: str | None = None) -> list[Ruling]:
    """Every verdict in the store, of one experiment or of all, oldest first."""
    said = [record.payload["config"] for record in store.records(VERDICTS)]
    found = [Ruling(**{**one, "verdict": Verdict(one["verdict"])}) for one in said]
    return [ruling for ruling in found if experiment in (None, ruling.experiment)]


def ruling_of(store: Store, experiment: Experiment) -> Ruling:
    """What counts: the latest that somebody said, else what stands in the experiment's file."""
    said = rulings(store, experiment.id)
    return said[-1] if said else Ruling(experiment.id, experiment.verdict, experiment.conclusion)
