"""Each experiment as the site shows it: what was registered, its runs, what came of them, and what people concluded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.records.experiment import Verdict, forecast_of
from marin_core.records.lineage import Lineage, key_of
from marin_core.records.outcome import Outcome
from marin_core.records.site.content import SiteContent
from marin_core.records.verdicts import Ruling
from marin_core.store import ArtifactRecord

_RUNS = "checkpoints/"
_REGISTRATION = "registration"


@dataclass(frozen=True)
class Run:
    """A training run of an experiment. `record` is None while its artifact is not there; `failure` is how it failed
    last."""

    arm: str
    name: str
    partition: str | None
    fingerprint: str
    record: ArtifactRecord | None
    failure: Outcome | None

    @property
    def status(self) -> str:
        if self.record is not None:
            return str(self.record.summary.get("status", "succeeded"))
        return "failed" if self.failure else "not run"


@dataclass(frozen=True)
class ExperimentView:
    """`ruling` is the verdict that counts, `rulings` all that were said, newest first; `failures` newest first."""

    id: str
    declared: Mapping[str, Any]
    registration: ArtifactRecord
    earlier: Sequence[ArtifactRecord]
    result: ArtifactRecord | None
    retrospective: ArtifactRecord | None
    ruling: Ruling
    rulings: Sequence[Ruling]
    runs: Sequence[Run]
    failures: Sequence[Outcome]

    @property
    def registered(self) -> str:
        return self.registration.provenance.ended

    @property
    def forecast(self) -> str:
        return forecast_of(self.declared["forecast"]).sentence()

    @property
    def forecast_held(self) -> bool | None:
        """None before there is a result."""
        return self.result.summary.get("forecast_held") if self.result else None

    @property
    def forecast_came_first(self) -> bool | None:
        """Whether the forecast was committed before the runs that it is about; None before there is a result. The
        forecast of a suite is an artifact of its own, however late the experiment was registered."""
        return self.result.summary.get("registered_before_runs") if self.result else None

    @property
    def is_about_suite(self) -> bool:
        return self.declared["forecast"]["kind"] == "suite"

    @property
    def registered_late(self) -> bool:
        """That some run had begun when the experiment was registered."""
        return any(run.record is not None and run.record.provenance.started < self.registered for run in self.runs)

    @property
    def diverged(self) -> list[Run]:
        """Runs that ended as they should with an artifact that says so."""
        return [run for run in self.runs if run.status == "diverged"]

    @property
    def prose(self) -> str:
        return str(self.retrospective.payload["config"].get("prose", "")) if self.retrospective else ""

    @property
    def updated(self) -> str:
        """When something was last said or found."""
        made = [r.provenance.ended for r in (self.registration, self.result) if r is not None]
        return max([*made, *(ruling.said for ruling in self.rulings if ruling.said)])


def experiments(content: SiteContent) -> list[ExperimentView]:
    """Those that were registered, the latest news first."""
    named = [name.split("/") for name in content.by_name]
    ids = [parts[1] for parts in named if len(parts) == 3 and (parts[0], parts[2]) == ("experiments", _REGISTRATION)]
    return sorted((_view(content, id_) for id_ in ids), key=lambda view: (view.updated, view.id), reverse=True)


def _view(content: SiteContent, id_: str) -> ExperimentView:
    registrations = _by_time(content, f"experiments/{id_}/{_REGISTRATION}")
    registration = registrations[-1]
    declared = registration.payload["config"]
    result = _newest_of(content, f"experiments/{id_}/result", registration)
    retrospective = _newest_of(content, f"experiments/{id_}/retrospective", registration)
    said = [ruling for ruling in content.rulings if ruling.experiment == id_]
    runs = _runs(content, declared, result)
    return ExperimentView(
        id=id_,
        declared=declared,
        registration=registration,
        earlier=registrations[-2::-1],
        result=result,
        retrospective=retrospective,
        ruling=_ruling(id_, said, retrospective),
        rulings=said[::-1],
        runs=runs,
        failures=_failures(content, id_, declared, runs),
    )


def _ruling(id_: str, said: Sequence[Ruling], retrospective: ArtifactRecord | None) -> Ruling:
    """The latest that somebody said, else what stood in the experiment's file."""
    if said:
        return said[-1]
    if retrospective is not None:
        stated = retrospective.payload["config"]["ruling"]
        return Ruling(id_, Verdict(stated["verdict"]), stated["conclusion"])
    return Ruling(id_, Verdict.IN_PROGRESS, "")


def _by_time(content: SiteContent, name: str) -> list[ArtifactRecord]:
    return sorted(content.by_name.get(name, []), key=lambda record: record.provenance.ended)


def _newest_of(content: SiteContent, name: str, registration: ArtifactRecord) -> ArtifactRecord | None:
    """The newest artifact that was made of a registration."""
    found = [
        record
        for record in _by_time(content, name)
        if any(read.fingerprint == registration.fingerprint for read in record.inputs.values())
    ]
    return found[-1] if found else None


def _runs(content: SiteContent, declared: Mapping[str, Any], result: ArtifactRecord | None) -> list[Run]:
    """The runs of the arms; of an experiment that has none, all that its result was made of."""
    wanted = [
        (arm, run["name"], run["partition"], run["fingerprint"])
        for arm, runs in declared.get("runs", {}).items()
        for run in runs
    ]
    if not wanted and result is not None:
        found = sorted(upstream(content, result, _RUNS), key=_size)
        wanted = [("", record.name, record.partition, record.fingerprint) for record in found]
    return [_run(content, *run) for run in wanted]


def _run(content: SiteContent, arm: str, name: str, partition: str | None, fingerprint: str) -> Run:
    failed = [o for o in content.outcomes_of_artifact.get((name, fingerprint), []) if o.status != "succeeded"]
    record = content.by_key.get((name, fingerprint))
    return Run(arm, name, partition, fingerprint, record, failed[0] if failed else None)


def upstream(content: SiteContent, record: ArtifactRecord, prefix: str) -> list[ArtifactRecord]:
    """Every artifact that a record was made of, however far up, whose name begins with `prefix`."""
    below = {key_of(one) for one in Lineage(record, content.by_key, frozenset()).walk()} - {key_of(record)}
    return [one for one in content.artifacts if one.name.startswith(prefix) and key_of(one) in below]


def _size(record: ArtifactRecord) -> tuple[float, float, str]:
    """Smaller runs first."""
    told = record.summary
    return float(told.get("flops") or 0), float(told.get("hidden_dim") or 0), record.partition or ""


def _failures(content: SiteContent, id_: str, declared: Mapping[str, Any], runs: Sequence[Run]) -> list[Outcome]:
    """What failed of an experiment: its own assets, those that it is about, its runs."""
    about = set(declared.get("selection", ()))
    fingerprints = {run.fingerprint for run in runs}
    partitions = {(run.name, run.partition) for run in runs}
    return [
        outcome
        for outcome in content.failed
        if outcome.asset.startswith(f"experiments/{id_}/")
        or outcome.asset in about
        or outcome.fingerprint in fingerprints
        or (outcome.partition is not None and (outcome.asset, outcome.partition) in partitions)
    ]
