"""A plan's model in Levanter's classes: its configuration, and a trained one read from a checkpoint.

Imports Levanter, and with it JAX, inside functions: workers call them, nothing else does.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_core.recipes import TrainPlan
from marin_core.recipes.layout import evaluation_batch
from marin_core.training.mesh import layout_to_evaluate, mesh_config

if TYPE_CHECKING:
    from levanter.models.lm_model import LmHeadModel
    from levanter.models.qwen import Qwen3Config
    from levanter.trainer import TrainerConfig


def model_config(plan: TrainPlan, tokenizer: str) -> "Qwen3Config":
    """Levanter's configuration of the plan's model; `tokenizer` is the URL or path that an export takes it from."""
    from levanter.layers.rotary import Llama3RotaryEmbeddingsConfig
    from levanter.models.qwen import Qwen3Config

    return Qwen3Config(
        max_seq_len=plan.seq_len,
        hidden_dim=plan.hidden_dim,
        intermediate_dim=plan.mlp_dim,
        num_layers=plan.num_layers,
        num_heads=plan.num_heads,
        num_kv_heads=plan.num_heads,
        head_dim=plan.head_dim,
        rope=Llama3RotaryEmbeddingsConfig(),
        tie_word_embeddings=False,
        # Levanter's default names a model on a hub, which an export would try to reach.
        reference_checkpoint=tokenizer,
        gradient_checkpointing=plan.gradient_checkpointing,
    )


# Evaluations run on one host, not on the slice that trained the model: with 4,096 positions and the vocabulary of the
# published suite the logits of so many sequences are 17 GB.
_SEQUENCES_PER_DEVICE = 8


@dataclass(frozen=True)
class TrainedModel:
    """A model with its parameters sharded over the devices of this process. `trainer` holds the mesh, the axis mappings
    and the precision (`trainer.mp`) with which it is meant to be run."""

    plan: TrainPlan
    model: "LmHeadModel[Any]"
    trainer: "TrainerConfig"


@contextlib.contextmanager
def trained_model(plan: TrainPlan, checkpoint: str, tokenizer: str, scratch: Path) -> Iterator[TrainedModel]:
    """The model of a checkpoint folder (`…/checkpoints/step-N`), parameters in float32; inside, its device mesh is set.

    `tokenizer` is the URL or path of its tokenizer.

    Raises:
        MarinError: the devices cannot share the model's width.
    """
    import jax
    import jmp
    from haliax import Axis
    from haliax.partitioning import round_axis_for_partitioning
    from levanter.distributed import DistributedConfig
    from levanter.model_loading import load_levanter_checkpoint
    from levanter.tracker import NoopConfig
    from levanter.trainer import TrainerConfig

    layout = layout_to_evaluate(plan)
    trainer = TrainerConfig(
        mp=jmp.get_policy(plan.precision),
        tracker=NoopConfig(),
        mesh=mesh_config(layout),
        per_device_eval_parallelism=min(_SEQUENCES_PER_DEVICE, evaluation_batch(plan, layout) // layout.batch_shards),
        require_accelerator=False,
        distributed=DistributedConfig(initialize_jax_distributed=False),
        log_dir=scratch,
    )
    with trainer.use_device_mesh():
        model = load_levanter_checkpoint(
            model_config(plan, tokenizer),
            checkpoint,
            Vocab=round_axis_for_partitioning(Axis("vocab", plan.vocab_size), trainer.parameter_axis_mapping),
            axis_mapping=trainer.parameter_axis_mapping,
            key=jax.random.PRNGKey(0),
        )
        yield TrainedModel(plan, model, trainer)
