"""Which run is meant: by partition, record of an outcome, fingerprint, or the name of an asset."""

import re

from marin_core.cli.naming import Artifacts, by_prefix
from marin_core.errors import MarinError
from marin_core.graph import CHECKPOINTS
from marin_core.records.difference import Identified
from marin_core.records.outcome import Outcome
from marin_core.records.outcomes import read_outcomes, valid_outcomes
from marin_core.records.side_by_side import Side
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
from marin_core.store.store import PLANS

_RECORD = re.compile(r"[0-9a-f]{4,16}")


class Runs:
    """Finds runs by what people call them."""

    def __init__(self, artifacts: Artifacts):
        self._artifacts = artifacts
        self._outcomes = read_outcomes(artifacts.store)

    def side(self, text: str) -> Side:
        """
        Raises:
            MarinError: there is nothing of that name.
        """
        artifacts = self._artifacts
        if "@" in text:
            name, _, prefix = text.partition("@")
            return self._of(text, artifacts.record(name, None, prefix))
        if text in artifacts.runs:
            spec = artifacts.runs[text]
            return self._of(text, artifacts.store.record(spec.name, spec.fingerprint) or spec)
        if text in artifacts.graph.heldout_partitions:
            return self._of(text, artifacts.record(CHECKPOINTS, text, None))
        if _RECORD.fullmatch(text):
            return self._of_outcome(text)
        if text in artifacts.names or artifacts.committed(text, None):
            return self._of(text, artifacts.record(text, None, None))
        return self._of_another_profile(text)

    def _of_another_profile(self, partition: str) -> Side:
        """A run whose partition the profile does not have, from what the store keeps of it."""
        committed = self._artifacts.committed(CHECKPOINTS, partition)
        if committed:
            return self._of(partition, committed[-1])
        tried = [o for o in valid_outcomes(self._outcomes) if o.partition == partition and o.fingerprint]
        if tried:
            return self._of_outcome(tried[-1].record)
        raise MarinError(
            f"no run {partition!r}; name a partition ({', '.join(list(self._artifacts.runs)[:3])}, …), an asset, "
            "NAME@FINGERPRINT, or a record that `marin records` lists"
        )

    def _of(self, label: str, made: Identified) -> Side:
        told = [o for o in valid_outcomes(self._outcomes) if o.fingerprint == made.fingerprint]
        if isinstance(made, ArtifactRecord):
            # A run that failed before this one is another.
            told = [o for o in told if _committed_by(made, o) or o.status == "succeeded"]
            return Side(label, made, made, told[-1] if told else None)
        return Side(label, made, None, told[-1] if told else None)

    def _of_outcome(self, prefix: str) -> Side:
        outcomes = {outcome.record: outcome for outcome in self._outcomes}
        outcome = outcomes[by_prefix(outcomes, prefix, "record")]
        if outcome.fingerprint is None:
            return Side(prefix, None, None, outcome)
        record = self._artifacts.store.record(outcome.asset, outcome.fingerprint)
        made = record or planned(self._artifacts.store, outcome.fingerprint)
        # What diverged is committed too.
        own = record if record and (_committed_by(record, outcome) or outcome.status == "succeeded") else None
        return Side(prefix, made, own, outcome)


def planned(store: Store, fingerprint: str) -> ArtifactSpec | None:
    """The plan by which an artifact was to be built; None if there is none."""
    for path, _ in store.objects.list(PLANS):
        if path.startswith(f"{PLANS}{fingerprint}-"):
            return store.load_plan(path)
    return None


def _committed_by(record: ArtifactRecord, outcome: Outcome) -> bool:
    return record.provenance.dagster_run == outcome.dagster_run
