"""A TrainPlan says everything about a run, so that the same plan is the same run wherever it happens."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from marin_core.recipes.hparams import OptimizerParams, optimizer_kind
from marin_core.recipes.recipe import Candidate, ScalingRecipe


@dataclass(frozen=True)
class TrainPlan:
    """One training run, complete. JSON both ways (`to_json`, `from_json`).

    `batch_size` is in sequences of `seq_len` tokens; evaluations read the first `eval_sequences` of each validation
    set in batches of `eval_batch_size`, every `steps_per_eval` steps and after the last one; checkpoints of every
    `steps_per_checkpoint` steps and of the last one are kept; `precision` is a jmp policy. `recipe` and
    `recipe_version` are fields of their own so that no run has to be understood from its name.
    """

    recipe: str
    recipe_version: str
    flops: float
    hidden_dim: int
    num_layers: int
    num_heads: int
    head_dim: int
    mlp_dim: int
    vocab_size: int
    seq_len: int
    batch_size: int
    steps: int
    params: int
    optimizer: OptimizerParams
    precision: str
    eval_sequences: int
    eval_batch_size: int
    steps_per_eval: int
    steps_per_checkpoint: int
    gradient_checkpointing: bool
    seed: int = 0

    @classmethod
    def of(cls, recipe: ScalingRecipe, candidate: Candidate, *, eval_sequences: int, seed: int = 0) -> "TrainPlan":
        """The plan of a recipe's candidate."""
        return cls(
            recipe=recipe.name,
            recipe_version=recipe.version,
            flops=candidate.flops,
            hidden_dim=candidate.hidden_dim,
            num_layers=candidate.num_layers,
            num_heads=candidate.num_heads,
            head_dim=recipe.head_dim,
            mlp_dim=recipe.mlp_ratio * candidate.hidden_dim,
            vocab_size=recipe.vocab_size,
            seq_len=candidate.seq_len,
            batch_size=candidate.batch_size,
            steps=candidate.steps,
            params=candidate.params,
            optimizer=candidate.optimizer,
            precision=recipe.precision,
            eval_sequences=eval_sequences,
            eval_batch_size=recipe.eval_batch_size,
            steps_per_eval=recipe.steps_per_eval,
            steps_per_checkpoint=recipe.steps_per_checkpoint,
            gradient_checkpointing=recipe.gradient_checkpointing,
            seed=seed,
        )

    @property
    def tokens(self) -> int:
        """Training tokens that the run sees."""
        return self.batch_size * self.steps * self.seq_len

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TrainPlan":
        settings = data["optimizer"]
        return cls(**{**data, "optimizer": optimizer_kind(settings)(**settings)})
