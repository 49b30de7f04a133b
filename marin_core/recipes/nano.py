"""The laptop's recipe: the Delphi rules with constants for models of a few hundred thousand parameters.

How the constants were chosen: the reference point is one run of 8e11 FLOPs at width 48, in batches of 4 sequences
(about 750 steps). Batch, the two learning rates and beta2 were swept one after another on the laptop mixture;
`python tests/benchmarks/tune_nano.py` repeats the sweep and prints its tables. Smaller batches are better at this
size, so `target_steps` is as high as runs of a minute allow. beta2 hardly matters between 0.95 and 0.995; 0.99 lets
the batch grow to 32 before beta2 meets its floor. Widths and the limits on parameters are such that the IsoFLOP
curves of the laptop's budgets have runs on both sides of their minima.

Every constant is ours, for the reasons above or beside it; those that are not named here are Delphi's.
"""

from marin_core.recipes.hparams import CompletedAdamHParams
from marin_core.recipes.recipe import ScalingRecipe

NANO = ScalingRecipe(
    name="nano",
    version="nano_v1",
    hparams=CompletedAdamHParams(
        reference_batch_size=4,
        reference_tokens=3.85e5,
        reference_learning_rate=0.007,
        reference_adam_lr=0.1,
        reference_epsilon=1e-8,
        reference_beta2=0.99,
        # Far above what any cell reaches, so that no batch is halved for it.
        learning_rate_cap=0.5,
        # Levanter's default; Delphi's 0.1 was tuned at another size.
        max_grad_norm=1.0,
    ),
    # As short as still lets a model of this size use its context.
    seq_len=128,
    # Of the tokenizer that the laptop trains.
    vocab_size=4096,
    # As wide as the narrowest model, which then has one head.
    head_dim=8,
    # Two layers at width 48, five at 128: few enough that a step is not all dispatch.
    depth_base=12,
    depth_slope=2,
    min_width=8,
    max_width=256,
    width_step=8,
    wide_width_step=8,
    wide_step_above=0,
    target_steps=768,
    min_batch_size=1,
    max_batch_size=64,
    max_tokens_per_param=21,
    max_params=4.7e5,
    max_params_at=8e11,
    # CPUs have no fast bfloat16.
    precision="f32",
    eval_batch_size=32,
    # Above every run's length: evaluated and kept once, at the end.
    steps_per_eval=10_000,
    steps_per_checkpoint=10_000,
    gradient_checkpointing=False,
)
