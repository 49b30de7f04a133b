"""From a profile to every artifact of the lab, with its identity, before anything has run.

This is the asset graph's shape without Dagster: names are asset keys. What an artifact's bytes depend on is decided
here and nowhere else.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from marin_core.graph.sources import SourceArtifacts, evaluation_artifacts, tokenizer_folder, training_artifacts
from marin_core.graph.specs import artifact
from marin_core.profile import PretrainedTokenizer, Profile, Scale
from marin_core.recipes import Candidate, ScalingRecipe, TrainPlan
from marin_core.store import ArtifactSpec, Store

CHECKPOINTS = "checkpoints/delphi"


def train_spec(plan: TrainPlan, key: str, mixture: ArtifactSpec) -> ArtifactSpec:
    """The artifact of one training run: its plan and its mixture, and nothing else, decide what it is."""
    return artifact(CHECKPOINTS, "train", {"plan": plan.to_json()}, {"mixture": mixture}, partition=key)


def heldout_run(heldout: ArtifactSpec, store: Store) -> ArtifactSpec:
    """The training run that a `delphi/heldout` artifact reports on."""
    chosen = store.artifact(heldout.inputs["forecast"]).read_json("forecast.json")["run"]
    recipe = ScalingRecipe.from_json(heldout.config["recipe"])
    candidate = recipe.as_published(recipe.candidate(chosen["flops"], chosen["hidden_dim"]))
    plan = TrainPlan.of(recipe, candidate, eval_sequences=heldout.config["eval_sequences"], seed=heldout.config["seed"])
    return train_spec(plan, candidate.key, heldout.inputs["mixture"])


@dataclass(frozen=True)
class LabGraph:
    """Every artifact of a profile. Attributes are specs; `unpartitioned` and `cells` list them."""

    scale: Scale

    @classmethod
    def of(cls, profile: Profile) -> "LabGraph":
        return cls(profile.scale)

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
        return artifact("delphi/suite", "collect_runs", {}, {"recipe": self.recipe, **self.cells})

    @cached_property
    def isoflop(self) -> ArtifactSpec:
        return artifact("delphi/isoflop", "fit_isoflop", {}, {"suite": self.suite})

    @cached_property
    def scaling_law(self) -> ArtifactSpec:
        return artifact("delphi/scaling_law", "fit_laws", {}, {"suite": self.suite, "isoflop": self.isoflop})

    @cached_property
    def forecast(self) -> ArtifactSpec:
        config = {"heldout_budget": self.scale.heldout_budget, "recipe": self.scale.recipe.to_json()}
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

    def heldout_run(self, store: Store) -> ArtifactSpec:
        """The held-out training run; which model it is stands in the committed forecast.

        Raises:
            StoreError: the forecast is not committed.
        """
        return heldout_run(self.heldout, store)

    @cached_property
    def verdict(self) -> ArtifactSpec:
        return artifact("delphi/verdict", "judge", {}, {"forecast": self.forecast, "heldout": self.heldout})

    @cached_property
    def figures(self) -> ArtifactSpec:
        inputs = {s.name.removeprefix("delphi/"): s for s in self._measured}
        return artifact("delphi/figures", "draw_figures", {}, inputs)

    @cached_property
    def dataset(self) -> ArtifactSpec:
        inputs = {s.name.removeprefix("delphi/"): s for s in self._measured}
        return artifact("delphi/dataset", "tabulate", {}, inputs)

    @property
    def _measured(self) -> tuple[ArtifactSpec, ...]:
        return self.suite, self.isoflop, self.scaling_law, self.forecast, self.heldout, self.verdict

    def unpartitioned(self) -> Iterator[ArtifactSpec]:
        """Every artifact that is one asset, sources first."""
        for made in self.sources.values():
            yield from made.stages.values()
        yield self.tokenizer
        yield from self.tokenized.values()
        yield self.mixture
        yield from (self.recipe, self.suite, self.isoflop, self.scaling_law, self.forecast, self.heldout)
        yield from (self.verdict, self.figures, self.dataset)
