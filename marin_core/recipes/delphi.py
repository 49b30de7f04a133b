"""The published Delphi recipe. Source of every constant: marin-community/marin, `completed_adamh` ("v6") and the
Delphi model cards; the token law is the one that selected the published held-out models."""

from marin_core.recipes.hparams import CompletedAdamHParams
from marin_core.recipes.recipe import ScalingRecipe, TokenLaw

DELPHI = ScalingRecipe(
    name="delphi",
    version="adamh_scaling_v6",
    hparams=CompletedAdamHParams(
        reference_batch_size=64,
        reference_tokens=2.5e9,
        reference_learning_rate=0.00630,
        reference_adam_lr=0.000656,
        reference_epsilon=1.85e-8,
        reference_beta2=0.9999,
    ),
    seq_len=4096,
    vocab_size=128_256,  # Llama-3 tokenizer
    head_dim=128,
    depth_base=64 - 9,
    depth_slope=4,
    min_width=512,
    max_width=2**17,
    width_step=128,
    wide_width_step=256,
    wide_step_above=2e19,
    target_steps=2**16,
    min_batch_size=8,
    max_batch_size=8192,
    max_tokens_per_param=250,
    precision="p=f32,c=bfloat16",
    eval_batch_size=512,
    steps_per_eval=1000,
    steps_per_checkpoint=5000,
    gradient_checkpointing=True,
    max_params=12e9,
    max_params_at=3e20,
    max_params_ceiling=1e12,
    token_law=TokenLaw(coefficient=0.026719627901911736, exponent=0.5800829529762268),
    batch_overrides={1e21: 512, 1e22: 1024, 1e23: 2048},
)

FIT_BUDGETS = (3e18, 9e18, 1.8e19, 3e19, 9e19, 1.8e20, 3e20)
HELDOUT_BUDGETS = (1e21, 1e22, 1e23)
