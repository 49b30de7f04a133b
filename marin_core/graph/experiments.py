"""What is made of each experiment: its registration, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_core.graph.runs import CHECKPOINTS, plan_key, train_spec
from marin_core.graph.specs import artifact
from marin_core.recipes import TrainPlan
from marin_core.records.experiment import Experiment
from marin_core.records.verdicts import Ruling
from marin_core.store import ArtifactSpec

REGISTRATION_ROLE = "registration"
# Before the place of a run in its arm, in the roles of a result: `adamw/0`.
ARM_SEPARATOR = "/"


@dataclass(frozen=True)
class ExperimentArtifacts:
    """The specs of an experiment. `runs` are the training runs of its arms, in pairs: the n-th of every arm belong
    together. `result` is None where its runs belong to another lab."""

    experiment: Experiment
    registration: ArtifactSpec
    runs: Mapping[str, Sequence[ArtifactSpec]]
    result: ArtifactSpec | None

    def retrospective(self, ruling: Ruling) -> ArtifactSpec:
        """The report of the experiment, with what people concluded by now."""
        inputs = {REGISTRATION_ROLE: self.registration}
        if self.result is not None:
            inputs["result"] = self.result
        config = {"ruling": ruling.to_json(), "prose": self.experiment.prose}
        return artifact(f"experiments/{self.experiment.id}/retrospective", "write_retrospective", config, inputs)


def arm_runs(
    experiment: Experiment, ladder: Sequence[TrainPlan], mixture: ArtifactSpec, cells: Mapping[str, ArtifactSpec]
) -> dict[str, list[ArtifactSpec]]:
    """The training runs of every arm. A plan that is a cell's is the cell's run, whoever asks for it."""
    if experiment.arms is None:
        return {}
    known = {spec.fingerprint: spec for spec in cells.values()}
    runs = {}
    for arm, plans in experiment.arms(ladder).items():
        specs = [train_spec(plan, f"{plan_key(plan)}-{arm}", mixture) for plan in plans]
        runs[arm] = [known.get(spec.fingerprint, spec) for spec in specs]
    return runs


def experiment_artifacts(
    experiment: Experiment,
    runs: Mapping[str, Sequence[ArtifactSpec]],
    suite: Mapping[str, ArtifactSpec],
    *,
    applies: bool,
) -> ExperimentArtifacts:
    """`suite` are the assets of the scaling suite by name, of which a `selection` names some."""
    compared = {arm: [_named(spec) for spec in specs] for arm, specs in runs.items()}
    config = {**experiment.declaration(), "runs": compared}
    registration = artifact(f"experiments/{experiment.id}/registration", "register_experiment", config, {})
    result = None
    if applies and experiment.arms is not None:
        inputs = {f"{arm}{ARM_SEPARATOR}{n}": spec for arm, specs in runs.items() for n, spec in enumerate(specs)}
        inputs[REGISTRATION_ROLE] = registration
        result = artifact(f"experiments/{experiment.id}/result", "compare_arms", {}, inputs)
    elif applies:
        inputs = {name: suite[name] for name in experiment.selection}
        inputs[REGISTRATION_ROLE] = registration
        result = artifact(f"experiments/{experiment.id}/result", "report_suite", {}, inputs)
    return ExperimentArtifacts(experiment, registration, runs, result)


def _named(spec: ArtifactSpec) -> dict[str, str | None]:
    return {"name": CHECKPOINTS, "partition": spec.partition, "fingerprint": spec.fingerprint}
