"""From a profile to every artifact of the lab, with its identity, before anything has run.

This is the asset graph's shape without Dagster: names are asset keys. What an artifact's bytes depend on is decided
here and nowhere else.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from marin_core.errors import MarinError
from marin_core.graph.evaluations import collected_evals, evaluations, harness_tasks
from marin_core.graph.experiments import ExperimentArtifacts, arm_runs, check_run_names, experiment_artifacts
from marin_core.graph.runs import (
    CHECKPOINTS,
    EVALS,
    EXPORTS,
    PUBLISHED_MODELS,
    TRAINED_PLAN,
    HeldOut,
    export_spec,
    heldout_evals,
    heldout_partitions,
    heldout_runs,
    plan_key,
    publication_spec,
    train_spec,
)
from marin_core.graph.sources import SourceArtifacts, evaluation_artifacts, tokenizer_folder, training_artifacts
from marin_core.graph.specs import artifact
from marin_core.profile import HubTarget, PretrainedTokenizer, Profile, Scale
from marin_core.recipes import Candidate, TrainPlan
from marin_core.records.declared import declared_experiments
from marin_core.records.experiment import Experiment
from marin_core.records.outcomes import read_outcomes, valid_outcomes
from marin_core.records.verdicts import ruling_of
from marin_core.store import ArtifactSpec, Store

__all__ = [
    "CHECKPOINTS",
    "EVALS",
    "EXPORTS",
    "PUBLISHED_MODELS",
    "TRAINED_PLAN",
    "LabGraph",
    "heldout_evals",
    "heldout_runs",
]


@dataclass(frozen=True)
class LabGraph:
    """Every artifact of a profile. Attributes are specs; `unpartitioned` and `cells` list them.

    Models and tables are published to `hub`, the one thing of a profile's place that is part of an identity: what lies
    at one hub does not lie at another. `declared` are the experiments that the lab runs, or only
    knows of.
    """

    scale: Scale
    hub: HubTarget
    declared: tuple[Experiment, ...] = ()

    @classmethod
    def of(cls, profile: Profile) -> "LabGraph":
        return cls(profile.scale, profile.place.hub, declared_experiments())

    @cached_property
    def sources(self) -> dict[str, SourceArtifacts]:
        """What is made of every source: of evaluation sources first, since the others are held against them."""
        evaluations = {
            source.name: evaluation_artifacts(source) for source in self.scale.sources if source.role == "evaluation"
        }
        references = {name: made.normalized for name, made in evaluations.items()}
        training = {
            source.name: training_artifacts(source, self.scale.near_duplicates, references)
            for source in self.scale.sources
            if source.role == "train"
        }
        return {**evaluations, **training}

    @cached_property
    def curated(self) -> dict[str, ArtifactSpec]:
        """The documents to tokenize of every source."""
        return {name: made.curated for name, made in self.sources.items()}

    @cached_property
    def tokenizer(self) -> ArtifactSpec:
        tokenizer = self.scale.tokenizer
        name = f"tokenizer/{tokenizer.name}"
        config = {key: value for key, value in dataclasses.asdict(tokenizer).items() if key != "name"}
        if isinstance(tokenizer, PretrainedTokenizer):
            folder = config.pop("folder")
            if folder is None:
                return artifact(name, "fetch_tokenizer", config, {})
            identity = {**config, "folder": tokenizer_folder(folder)}
            return artifact(name, "fetch_tokenizer", identity, {}, context={"folder": folder})
        trained_on = {name: self.curated[name] for name in self._training_sources}
        return artifact(name, "train_tokenizer", config, trained_on)

    @cached_property
    def tokenized(self) -> dict[str, ArtifactSpec]:
        return {
            name: artifact(
                f"tokenized/{name}",
                "tokenize",
                {
                    "source": name,
                    "validation_share": self.scale.validation_share if name in self._training_sources else 1.0,
                    "framing": self.scale.framing,
                    "messages_field": made.source.layout.messages_field,
                },
                {"curated": made.curated, "tokenizer": self.tokenizer},
                context={"source": made.source.to_json()},
            )
            for name, made in self.sources.items()
        }

    @cached_property
    def mixture(self) -> ArtifactSpec:
        config = self.scale.mixture
        components = {self.tokenized[name].name: self.tokenized[name] for name in config.components}
        return artifact(f"mixture/{config.name}", "mix", config.to_json(), {**components, "tokenizer": self.tokenizer})

    @property
    def _training_sources(self) -> list[str]:
        return [source.name for source in self.scale.sources if source.role == "train"]

    @cached_property
    def candidates(self) -> dict[str, Candidate]:
        """The ladder: every cell of the fit budgets by partition key, budgets and widths ascending."""
        recipe = self.scale.recipe
        return {c.key: c for budget in sorted(self.scale.fit_budgets) for c in recipe.candidates(budget)}

    @cached_property
    def cells(self) -> dict[str, ArtifactSpec]:
        """The training run of every cell of the ladder."""
        return {key: train_spec(self.plan(c), key, self.mixture) for key, c in self.candidates.items()}

    def plan(self, candidate: Candidate) -> TrainPlan:
        return TrainPlan.of(
            self.scale.recipe, candidate, eval_sequences=self.scale.eval_sequences, seed=self.scale.seed
        )

    @cached_property
    def recipe(self) -> ArtifactSpec:
        config = {"recipe": self.scale.recipe.to_json(), "fit_budgets": list(self.scale.fit_budgets)}
        return artifact("delphi/recipe", "list_candidates", config, {})

    @cached_property
    def suite(self) -> ArtifactSpec:
        excluded = dict(self.scale.excluded)
        if unknown := sorted(set(excluded) - set(self.cells)):
            raise MarinError(f"excluded names {unknown[0]!r}, which is no cell of the ladder: {', '.join(self.cells)}")
        return artifact("delphi/suite", "collect_runs", {"excluded": excluded}, {"recipe": self.recipe, **self.cells})

    @cached_property
    def isoflop(self) -> ArtifactSpec:
        return artifact("delphi/isoflop", "fit_isoflop", {}, {"suite": self.suite})

    @cached_property
    def scaling_law(self) -> ArtifactSpec:
        return artifact("delphi/scaling_law", "fit_laws", {}, {"suite": self.suite, "isoflop": self.isoflop})

    @cached_property
    def forecast(self) -> ArtifactSpec:
        config = {"heldout_budgets": sorted(self.scale.heldout_budgets), "recipe": self.scale.recipe.to_json()}
        return artifact("delphi/forecast", "forecast", config, {"scaling_law": self.scaling_law})

    @cached_property
    def heldout(self) -> ArtifactSpec:
        config = {
            "recipe": self.scale.recipe.to_json(),
            "eval_sequences": self.scale.eval_sequences,
            "seed": self.scale.seed,
        }
        return artifact(
            "delphi/heldout", "collect_heldout", config, {"forecast": self.forecast, "mixture": self.mixture}
        )

    @cached_property
    def heldout_partitions(self) -> dict[str, HeldOut]:
        """The held-out runs by partition key; which models they are stands in the committed forecast."""
        return heldout_partitions(self.scale.recipe, self.scale.heldout_budgets, self.scale.seed)

    def heldout_runs(self, store: Store) -> dict[str, ArtifactSpec]:
        """The held-out training runs by partition key.

        Raises:
            StoreError: the forecast is not committed.
        """
        return heldout_runs(self.heldout, store)

    def run(self, key: str, store: Store) -> ArtifactSpec:
        """The training run of a partition: a cell of the ladder, or a held-out run.

        Raises:
            StoreError: it is a held-out run, and the forecast is not committed.
        """
        return self.cells[key] if key in self.cells else self.heldout_runs(store)[key]

    def run_of_plan(self, plan: TrainPlan) -> ArtifactSpec:
        """The training run of any plan, on this profile's mixture."""
        return train_spec(plan, plan_key(plan), self.mixture)

    @cached_property
    def harness_tasks(self) -> dict[str, ArtifactSpec]:
        """The files of every task of lm-evaluation-harness that has some of its own, by the task's name."""
        return harness_tasks(self.scale.evals, self.sources, self.tokenized)

    def evaluations(self, run: ArtifactSpec) -> dict[str, ArtifactSpec]:
        """Every evaluation of a run by name: `perplexity`, and the tasks of the profile."""
        return evaluations(run, self.scale.evals, self.sources, self.tokenized, self.harness_tasks)

    def evaluated(self, run: ArtifactSpec) -> ArtifactSpec:
        """All evaluations of a run together."""
        return collected_evals(run, self.evaluations(run), self.sources)

    def export(self, run: ArtifactSpec) -> ArtifactSpec:
        return export_spec(run, self.tokenizer)

    def publication(self, run: ArtifactSpec) -> ArtifactSpec:
        return publication_spec(run, self.export(run), self.evaluated(run), dataclasses.asdict(self.hub))

    @cached_property
    def verdict(self) -> ArtifactSpec:
        return artifact("delphi/verdict", "judge", {}, {"forecast": self.forecast, "heldout": self.heldout})

    @cached_property
    def evals(self) -> ArtifactSpec:
        cells = {key: self.evaluated(run) for key, run in self.cells.items()}
        return artifact(
            "delphi/evals", "collect_suite_evals", {}, {"suite": self.suite, "heldout": self.heldout, **cells}
        )

    @cached_property
    def downstream(self) -> ArtifactSpec:
        inputs = {"suite": self.suite, "isoflop": self.isoflop, "heldout": self.heldout, "evals": self.evals}
        config = {
            "heldout_budgets": sorted(self.scale.heldout_budgets),
            "external": [dataclasses.asdict(score) for score in self.scale.evals.external],
        }
        return artifact("delphi/downstream", "forecast_downstream", config, inputs)

    @cached_property
    def figures(self) -> ArtifactSpec:
        return artifact("delphi/figures", "draw_figures", {}, self._measured)

    @cached_property
    def dataset(self) -> ArtifactSpec:
        return artifact("delphi/dataset", "tabulate", {}, self._measured)

    @cached_property
    def report(self) -> ArtifactSpec:
        return artifact("delphi/report", "write_report", {}, {**self._measured, "figures": self.figures})

    @cached_property
    def published_dataset(self) -> ArtifactSpec:
        target = dataclasses.asdict(self.hub)
        return artifact("publish/dataset", "publish_dataset", target, {"dataset": self.dataset})

    @cached_property
    def experiments(self) -> dict[str, ExperimentArtifacts]:
        """What is made of every declared experiment, by its id. Their runs are planned only where they are to run."""
        ladder = [self.plan(candidate) for candidate in self.candidates.values()]
        suite = {spec.name: spec for spec in (*self._measured.values(), self.figures)}
        made = {}
        for experiment in self.declared:
            applies = experiment.applies_to(self.scale.recipe)
            runs = arm_runs(experiment, ladder, self.mixture, self.cells) if applies else {}
            made[experiment.id] = experiment_artifacts(experiment, runs, suite, applies=applies)
        check_run_names(made.values())
        return made

    def retrospective(self, id_: str, store: Store) -> ArtifactSpec:
        """The report of an experiment with what people concluded by now, and what is recorded of work that failed."""
        made = self.experiments[id_]
        # Which models the held-out runs are stands in the forecast.
        about_heldout = made.result is not None and self.heldout.name in made.experiment.selection
        known = about_heldout and store.current(self.forecast) is not None
        heldout = [run.fingerprint for run in self.heldout_runs(store).values()] if known else []
        failed = made.failed(valid_outcomes(read_outcomes(store)), heldout)
        return made.retrospective(ruling_of(store, made.experiment), failed)

    @property
    def _measured(self) -> dict[str, ArtifactSpec]:
        found = (self.suite, self.isoflop, self.scaling_law, self.forecast, self.heldout, self.verdict)
        return {spec.name.removeprefix("delphi/"): spec for spec in (*found, self.evals, self.downstream)}

    def unpartitioned(self) -> Iterator[ArtifactSpec]:
        """Every artifact that is one asset, sources first."""
        for made in self.sources.values():
            yield from made.stages.values()
        yield self.tokenizer
        yield from self.tokenized.values()
        yield self.mixture
        yield from self.harness_tasks.values()
        yield from (self.recipe, self.suite, self.isoflop, self.scaling_law, self.forecast, self.heldout, self.verdict)
        yield from (self.evals, self.downstream, self.figures, self.dataset, self.report, self.published_dataset)
        for experiment in self.experiments.values():
            yield experiment.registration
            if experiment.result is not None:
                yield experiment.result
