"""The laptop's recipe: the Delphi rules with constants for models of a few hundred thousand parameters."""

from marin_core.recipes.hparams import CompletedAdamHParams
from marin_core.recipes.recipe import ScalingRecipe

NANO = ScalingRecipe(
    name="nano",
    version="nano_v1",
    hparams=CompletedAdamHParams(
        reference_batch_size=16,
        reference_tokens=5e5,
        reference_learning_rate=0.02,
        reference_adam_lr=0.01,
        reference_epsilon=1e-8,
        reference_beta2=0.99,
        learning_rate_cap=0.1,
        max_grad_norm=1.0,
    ),
    seq_len=128,
    vocab_size=4096,
    head_dim=16,
    depth_base=8,
    depth_slope=2,
    min_width=16,
    max_width=512,
    width_step=16,
    wide_width_step=16,
    wide_step_above=0,
    target_steps=2**8,
    min_batch_size=4,
    max_batch_size=256,
    max_tokens_per_param=250,
    precision="f32",
    eval_batch_size=32,
    steps_per_eval=1000,
    gradient_checkpointing=False,
)
