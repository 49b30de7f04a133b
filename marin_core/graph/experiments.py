"""What is made of each experiment: its registration, and what came of it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from marin_core.errors import MarinError
from marin_core.graph.runs import CHECKPOINTS, plan_key, train_spec
from marin_core.graph.specs import artifact
from marin_core.recipes import TrainPlan
from marin_core.records.experiment import DifferenceForecast, Experiment
from marin_core.records.outcome import Outcome
from marin_core.records.retrospective import look
from marin_core.records.verdicts import Ruling
from marin_core.store import ArtifactSpec

REGISTRATION_ROLE = "registration"
RESULT_ROLE = "result"
# Before the place of a run in its arm, in the roles of a result: `adamw/0`.
ARM_SEPARATOR = "/"
# What a report says of work that failed; the whole record has more.
_TOLD_OF_FAILURES = ("record", "asset", "partition", "exit_class", "reason", "last_step", "ended", "dagster_run")


@dataclass(frozen=True)
class ExperimentArtifacts:
    """The specs of an experiment. `runs` are the training runs of its arms, in pairs: the n-th of every arm belong
    together. `result` is None where its runs belong to another lab."""

    experiment: Experiment
    registration: ArtifactSpec
    runs: Mapping[str, Sequence[ArtifactSpec]]
    result: ArtifactSpec | None

    def retrospective(self, ruling: Ruling, failed: Sequence[Outcome] = ()) -> ArtifactSpec:
        """The report of the experiment, with what people concluded by now, and what is recorded of work that failed."""
        inputs = {REGISTRATION_ROLE: self.registration}
        if self.result is not None:
            inputs[RESULT_ROLE] = self.result
        config = {"ruling": ruling.to_json(), "prose": self.experiment.prose, "look": look()}
        if failed:
            rows = [{**outcome.to_json(), "reason": outcome.cause} for outcome in failed]
            config["failed"] = [{name: row[name] for name in _TOLD_OF_FAILURES} for row in rows]
        return artifact(f"experiments/{self.experiment.id}/retrospective", "write_retrospective", config, inputs)

    def failed(self, outcomes: Sequence[Outcome], heldout: Collection[str] = ()) -> list[Outcome]:
        """Of all outcomes those of work for this experiment that failed or was cancelled. `heldout` are fingerprints of
        its runs that only a forecast names."""
        mine = {run.fingerprint for run in self._training_runs()} | set(heldout)
        assets = {*self.experiment.selection, *([self.result.name] if self.result else [])}
        return [
            outcome
            for outcome in outcomes
            if outcome.status != "succeeded" and (outcome.fingerprint in mine or outcome.asset in assets)
        ]

    def _training_runs(self) -> Iterator[ArtifactSpec]:
        """Every training run that the result is made of."""
        ahead, seen = [self.result] if self.result else [], set()
        while ahead:
            spec = ahead.pop()
            if spec.name == CHECKPOINTS:
                yield spec
                continue
            new = [i for i in spec.inputs.values() if i.fingerprint not in seen]
            seen |= {i.fingerprint for i in new}
            ahead += new


def arm_runs(
    experiment: Experiment, ladder: Sequence[TrainPlan], mixture: ArtifactSpec, cells: Mapping[str, ArtifactSpec]
) -> dict[str, list[ArtifactSpec]]:
    """The training runs of every arm. A plan that is a cell's is the cell's run, whoever asks for it.

    Raises:
        MarinError: arms that belong together have not as many plans, or the forecast is about an arm that is not there.
    """
    if experiment.arms is None:
        return {}
    known = {spec.fingerprint: spec for spec in cells.values()}
    runs = {}
    for arm, plans in experiment.arms(ladder).items():
        specs = [train_spec(plan, f"{plan_key(plan)}-{arm}", mixture) for plan in plans]
        runs[arm] = [known.get(spec.fingerprint, spec) for spec in specs]
    _check_arms(experiment, runs)
    return runs


def experiment_artifacts(
    experiment: Experiment,
    runs: Mapping[str, Sequence[ArtifactSpec]],
    suite: Mapping[str, ArtifactSpec],
    *,
    applies: bool,
) -> ExperimentArtifacts:
    """`suite` are the assets of the scaling suite by name, of which a `selection` names some.

    Raises:
        MarinError: it names one that there is not.
    """
    compared = {arm: [_named(spec) for spec in specs] for arm, specs in runs.items()}
    config = {**experiment.declaration(), "runs": compared}
    registration = artifact(f"experiments/{experiment.id}/registration", "register_experiment", config, {})
    result = None
    if applies and experiment.arms is not None:
        inputs = {f"{arm}{ARM_SEPARATOR}{n}": spec for arm, specs in runs.items() for n, spec in enumerate(specs)}
        inputs[REGISTRATION_ROLE] = registration
        result = artifact(f"experiments/{experiment.id}/result", "compare_arms", {}, inputs)
    elif applies:
        if unknown := [name for name in experiment.selection if name not in suite]:
            raise MarinError(f"experiment {experiment.id} selects {unknown[0]!r}; there are {', '.join(suite)}")
        inputs = {name: suite[name] for name in experiment.selection}
        inputs[REGISTRATION_ROLE] = registration
        result = artifact(f"experiments/{experiment.id}/result", "report_suite", {}, inputs)
    return ExperimentArtifacts(experiment, registration, runs, result)


def check_run_names(made: Iterable[ExperimentArtifacts]) -> None:
    """
    Raises:
        MarinError: different runs are called alike, so that the outcome of one would pass for the other's.
    """
    named: dict[str | None, tuple[str, str]] = {}
    for one in made:
        for spec in (spec for specs in one.runs.values() for spec in specs):
            id_, fingerprint = named.setdefault(spec.partition, (one.experiment.id, spec.fingerprint))
            if fingerprint != spec.fingerprint:
                raise MarinError(
                    f"two different runs are called {spec.partition}, one of experiment {id_} and one of "
                    f"{one.experiment.id}; give them arms of different names"
                )


def _check_arms(experiment: Experiment, runs: Mapping[str, Sequence[ArtifactSpec]]) -> None:
    counts = {arm: len(specs) for arm, specs in runs.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        said = ", ".join(f"{arm} has {count}" for arm, count in counts.items())
        raise MarinError(f"arms of experiment {experiment.id} must have equally many plans, but {said}; pair them up")
    forecast = experiment.forecast
    named = (forecast.first, *forecast.seconds) if isinstance(forecast, DifferenceForecast) else ()
    if unknown := [arm for arm in named if arm not in runs]:
        raise MarinError(f"experiment {experiment.id} forecasts of arm {unknown[0]!r}; there are {', '.join(runs)}")


def _named(spec: ArtifactSpec) -> dict[str, str | None]:
    return {"name": CHECKPOINTS, "partition": spec.partition, "fingerprint": spec.fingerprint}
