"""From a profile to every artifact of the lab, with its identity, before anything has run.

This is the asset graph's shape without Dagster: names are asset keys. What an artifact's bytes depend on is decided
here and nowhere else.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marin_core.profile import Profile, Scale
from marin_core.recipes import Candidate, ScalingRecipe, TrainPlan
from marin_core.store import ArtifactSpec, Store
from marin_core.tasks import TASKS

CHECKPOINTS = "checkpoints/delphi"


def artifact(
    name: str, task: str, config: dict[str, Any], inputs: dict[str, ArtifactSpec], partition: str | None = None
) -> ArtifactSpec:
    return ArtifactSpec(name, task, TASKS[task].code_version, config, inputs, partition)


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
    def raw(self) -> dict[str, ArtifactSpec]:
        return {
            s.name: artifact(f"raw/{s.name}", "read_source", {"source": s.name, **s.identity()}, {})
            for s in self.scale.sources
        }

    @cached_property
    def curated(self) -> dict[str, ArtifactSpec]:
        return {
            name: artifact(f"curated/{name}", "curate", {"source": name}, {"raw": raw})
            for name, raw in self.raw.items()
        }

    @cached_property
    def tokenizer(self) -> ArtifactSpec:
        config = dataclasses.asdict(self.scale.tokenizer)
        return artifact(f"tokenizer/{config.pop('name')}", "train_tokenizer", config, self.curated)

    @cached_property
    def tokenized(self) -> dict[str, ArtifactSpec]:
        return {
            name: artifact(
                f"tokenized/{name}",
                "tokenize",
                {"source": name, "validation_share": self.scale.validation_share},
                {"curated": curated, "tokenizer": self.tokenizer},
            )
            for name, curated in self.curated.items()
        }

    @cached_property
    def mixture(self) -> ArtifactSpec:
        config = self.scale.mixture
        components = {name: self.tokenized[name] for name in config.weights}
        return artifact(
            f"mixture/{config.name}",
            "mix",
            {"weights": dict(config.weights), "block_size": config.block_size},
            {**components, "tokenizer": self.tokenizer},
        )

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
        for name in self.raw:
            yield self.raw[name]
            yield self.curated[name]
        yield self.tokenizer
        yield from self.tokenized.values()
        yield self.mixture
        yield from (self.recipe, self.suite, self.isoflop, self.scaling_law, self.forecast, self.heldout)
        yield from (self.verdict, self.figures, self.dataset)
