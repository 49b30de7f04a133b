"""Everything that the site shows, gathered from the store: artifacts, outcomes of runs, verdicts."""

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from marin_core.records.lineage import Key, key_of
from marin_core.records.outcome import Outcome
from marin_core.records.outcomes import read_outcomes, valid_outcomes
from marin_core.records.verdicts import Ruling, rulings
from marin_core.store import ArtifactRecord, Store
from marin_core.store.spec import canonical_json, digest

SITE = "records/site"
TEMPLATES, STATIC = (Path(__file__).with_name(folder) for folder in ("templates", "static"))
# Outcomes and verdicts are shown as what they say, not as the artifacts that hold them.
_KEPT_APART = ("records/",)


@dataclass(frozen=True)
class SiteContent:
    """What the store held at `until`, a time in ISO 8601: artifacts in the order of name, partition and time, outcomes
    newest first."""

    title: str
    until: str
    artifacts: Sequence[ArtifactRecord]
    outcomes: Sequence[Outcome]
    rulings: Sequence[Ruling]

    @property
    def identity(self) -> dict[str, str]:
        """Differs if what is shown differs, or how."""
        shown = [
            [[a.name, a.fingerprint, a.content, a.provenance.ended] for a in self.artifacts],
            [outcome.record for outcome in self.outcomes],
            [ruling.to_json() for ruling in self.rulings],
        ]
        return {"title": self.title, "until": self.until, "holds": digest(canonical_json(shown)), "look": look()}

    @cached_property
    def by_key(self) -> dict[Key, ArtifactRecord]:
        """Artifacts by name and fingerprint."""
        return {key_of(record): record for record in self.artifacts}

    @cached_property
    def by_name(self) -> dict[str, list[ArtifactRecord]]:
        named = defaultdict(list)
        for record in self.artifacts:
            named[record.name].append(record)
        return dict(named)

    @cached_property
    def newest(self) -> dict[tuple[str, str | None], ArtifactRecord]:
        """The newest artifact of every name and partition."""
        ordered = sorted(self.artifacts, key=lambda record: record.provenance.ended)
        return {(record.name, record.partition): record for record in ordered}

    @cached_property
    def used_by(self) -> dict[Key, list[ArtifactRecord]]:
        """The artifacts that read an artifact."""
        readers = defaultdict(list)
        for record in self.artifacts:
            for key in dict.fromkeys((read.name, read.fingerprint) for read in record.inputs.values()):
                readers[key].append(record)
        return dict(readers)

    @cached_property
    def valid(self) -> list[Outcome]:
        """The outcomes that no later one corrects, newest first."""
        return valid_outcomes(self.outcomes)

    @cached_property
    def failed(self) -> list[Outcome]:
        """Of the valid outcomes, those that ended without their artifact."""
        return [outcome for outcome in self.valid if outcome.status != "succeeded"]

    @cached_property
    def outcomes_of_artifact(self) -> dict[Key, list[Outcome]]:
        """Outcomes by asset and fingerprint."""
        found = defaultdict(list)
        for outcome in self.outcomes:
            if outcome.fingerprint:
                found[outcome.asset, outcome.fingerprint].append(outcome)
        return dict(found)

    @cached_property
    def corrections(self) -> dict[str, list[Outcome]]:
        """What was said in the place of an outcome, by its record, oldest first."""
        found = defaultdict(list)
        for outcome in reversed(self.outcomes):
            if outcome.corrects:
                found[outcome.corrects].append(outcome)
        return dict(found)

    @cached_property
    def by_record(self) -> dict[str, Outcome]:
        return {outcome.record: outcome for outcome in self.outcomes}


def gather(store: Store, title: str, until: str | None = None) -> SiteContent:
    """What the store holds, or of that what was there at `until`."""
    artifacts = [record for record in store.everything(without=_KEPT_APART) if _by(record.provenance.ended, until)]
    outcomes = [outcome for outcome in read_outcomes(store) if _by(outcome.ended, until) and _tells(outcome)]
    said = [ruling for ruling in rulings(store) if _by(ruling.said or "", until)]
    times = [*(a.provenance.ended for a in artifacts), *(o.ended for o in outcomes), *(r.said or "" for r in said)]
    artifacts.sort(key=lambda a: (a.name, a.partition or "", a.provenance.ended, a.fingerprint))
    return SiteContent(title, until or max(times, default=""), tuple(artifacts), tuple(reversed(outcomes)), tuple(said))


def _by(time: str, until: str | None) -> bool:
    return until is None or time <= until


def _tells(outcome: Outcome) -> bool:
    """That the site was built says nothing, and would make the next site another one."""
    return not (outcome.asset == SITE and outcome.status == "succeeded")


@functools.cache
def look() -> str:
    """Digest of the templates and of the static files: who changes one does not look at the old pages for long."""
    files = sorted(path for folder in (TEMPLATES, STATIC) for path in folder.iterdir())
    return digest(canonical_json([[path.name, path.read_text()] for path in files]))
