"""Training runs, of the ladder's cells and of the held-out budgets, and what is made of each: an export, a publication,
the evaluations of another run."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_core.graph.specs import artifact
from marin_core.recipes import Candidate, ScalingRecipe, TrainPlan, format_budget
from marin_core.store import ArtifactSpec, Store

CHECKPOINTS = "checkpoints/delphi"
EVALS = "evals/delphi"
EXPORTS = "exports/delphi"
PUBLISHED_MODELS = "publish/delphi"
# The asset that trains any plan of this form, from a file.
TRAINED_PLAN = "plan/checkpoint"


@dataclass(frozen=True)
class HeldOut:
    """One held-out run before its model is known: its budget in FLOPs and its seed."""

    flops: float
    seed: int


def heldout_partitions(recipe: ScalingRecipe, budgets: Sequence[float], seed: int) -> dict[str, HeldOut]:
    """The held-out runs by partition key, budgets ascending: `1e21-optimal`, of several seeds `1e21-optimal-s42`.

    They are named before the forecast says which models they are. `seed` is that of budgets for which the recipe has
    none of its own.
    """
    runs: dict[str, HeldOut] = {}
    for flops in sorted(budgets):
        seeds = recipe.seeds(flops) or (seed,)
        for one in seeds:
            suffix = f"-s{one}" if len(seeds) > 1 else ""
            runs[f"{format_budget(flops)}-optimal{suffix}"] = HeldOut(flops, one)
    return runs


def train_spec(plan: TrainPlan, key: str, mixture: ArtifactSpec) -> ArtifactSpec:
    """The artifact of one training run: its plan and its mixture, and nothing else, decide what it is."""
    return artifact(CHECKPOINTS, "train", {"plan": plan.to_json()}, {"mixture": mixture}, partition=key)


def heldout_runs(heldout: ArtifactSpec, store: Store) -> dict[str, ArtifactSpec]:
    """The training runs that a `delphi/heldout` artifact reports on, by partition key.

    Raises:
        StoreError: the forecast, which says which models they are, is not committed.
    """
    config = heldout.config
    recipe = ScalingRecipe.from_json(config["recipe"])
    forecasts = store.artifact(heldout.inputs["forecast"]).read_json("forecast.json")["forecasts"]
    chosen = {one["flops"]: one["run"]["hidden_dim"] for one in forecasts}
    runs = {}
    for key, run in heldout_partitions(recipe, list(chosen), config["seed"]).items():
        candidate = recipe.as_published(recipe.candidate(run.flops, chosen[run.flops]))
        plan = TrainPlan.of(recipe, candidate, eval_sequences=config["eval_sequences"], seed=run.seed)
        runs[key] = train_spec(plan, key, heldout.inputs["mixture"])
    return runs


def plan_key(plan: TrainPlan) -> str:
    """How a run is called that belongs to no ladder: as the cell with its budget and width would be."""
    seed = f"-s{plan.seed}" if plan.seed else ""
    return f"{Candidate.key_of(plan.flops, plan.hidden_dim)}{seed}"


def of_other_run(evaluated: ArtifactSpec, run: ArtifactSpec) -> ArtifactSpec:
    """The same evaluations of another checkpoint."""

    def replaced(spec: ArtifactSpec) -> ArtifactSpec:
        inputs = {role: run if role == "checkpoint" else i for role, i in spec.inputs.items()}
        return dataclasses.replace(spec, inputs=inputs, partition=run.partition)

    inputs = {role: replaced(spec) if "checkpoint" in spec.inputs else spec for role, spec in evaluated.inputs.items()}
    return replaced(dataclasses.replace(evaluated, inputs=inputs))


def heldout_evals(evals: ArtifactSpec, store: Store) -> dict[str, ArtifactSpec]:
    """The evaluations of the held-out runs of a `delphi/evals` artifact, by partition key: those of its cells.

    Raises:
        StoreError: the forecast, which says which models they are, is not committed.
    """
    of_a_cell = next(spec for spec in evals.inputs.values() if spec.name == EVALS)
    return {key: of_other_run(of_a_cell, run) for key, run in heldout_runs(evals.inputs["heldout"], store).items()}


def export_spec(run: ArtifactSpec, tokenizer: ArtifactSpec) -> ArtifactSpec:
    """The Hugging Face folder of a run's last checkpoint."""
    inputs = {"checkpoint": run, "tokenizer": tokenizer}
    return artifact(EXPORTS, "export_checkpoint", {"dtype": "float32"}, inputs, partition=run.partition)


def publication_spec(
    run: ArtifactSpec,
    export: ArtifactSpec,
    evals: ArtifactSpec,
    target: Mapping[str, object],
) -> ArtifactSpec:
    """A run's model on a hub."""
    mixture = run.inputs["mixture"]
    inputs = {
        "checkpoint": run,
        "export": export,
        "evals": evals,
        "mixture": mixture,
        "tokenizer": mixture.inputs["tokenizer"],
    }
    return artifact(PUBLISHED_MODELS, "publish_model", dict(target), inputs, partition=run.partition)
