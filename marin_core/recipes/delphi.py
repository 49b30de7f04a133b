"""The published Delphi recipe and the two that it superseded.

Source of every constant, where none is named: `completed_adamh` of marin-community/marin ("v6"), the recipe of the
public suite, which its model cards and its announcement repeat (public Marin record).
"""

import dataclasses
import math

from marin_core.recipes.candidate import TokenLaw
from marin_core.recipes.heldout import published_heldout_runs
from marin_core.recipes.hparams import CompletedAdamHParams, WidthScaledAdamHParams
from marin_core.recipes.recipe import ScalingRecipe

DELPHI = ScalingRecipe(
    name="delphi",
    version="adamh_scaling_v6",
    # A Vizier search on a Qwen3 of some 130M parameters and width 512. The text says 2.5e9 tokens, the stored script of
    # the search 1e9; the recipe's formulas use 2.5e9.
    hparams=CompletedAdamHParams(
        reference_batch_size=64,
        reference_tokens=2.5e9,
        reference_learning_rate=0.00630,
        reference_adam_lr=0.000656,
        reference_epsilon=1.85e-8,
        reference_beta2=0.9999,
    ),
    seq_len=4096,
    # Of the Llama-3 tokenizer and of `marin-community/marin-tokenizer`, which adds a chat template only.
    vocab_size=128_256,
    head_dim=128,
    # The recipe's base ratio 64 less its offset 9.
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
    # Of the launch script; the sweep has the same policy.
    precision="p=f32,c=bfloat16",
    # Ours, where the library would take the training batch: 512 sequences divide among 2^n devices up to 512.
    eval_batch_size=512,
    # Of the launch script: the trainer evaluates every 1000 steps, and keeps a checkpoint of every 5000.
    steps_per_eval=1000,
    steps_per_checkpoint=5000,
    # The library's default, which the launches leave.
    gradient_checkpointing=True,
    mlp_ratio=4,
    max_params=12e9,
    max_params_at=3e20,
    max_params_ceiling=1e12,
    # Of the analysis that chose the held-out models, label `adamh_scaling_v6`: fitted on the minima of bits per byte on
    # Paloma's c4_en.
    token_law=TokenLaw(coefficient=0.026719627901911736, exponent=0.5800829529762268),
    heldout_runs=published_heldout_runs(),
)

# The seven budgets of the public sweep, and the three that were trained as held-out runs; FLOPs.
FIT_BUDGETS = (3e18, 9e18, 1.8e19, 3e19, 9e19, 1.8e20, 3e20)
HELDOUT_BUDGETS = (1e21, 1e22, 1e23)

# The deprecated generation before v6, so that runs labelled `adamh_scaling_v5` can be read: v6 with an Adam rate that
# falls with the width. What is public of it: that v6 differs by "no /H on adam_lr", and the tracked settings of
# `isoflop-3e+20-d2048-L21-B128-adamh_scaling_v5` (rates 4.483e-3 and 7.382e-5, beta2 0.99980, epsilon 4.11e-8, 47 064
# steps), which this gives to all their digits. Its source is not: the rest (clip, schedule, z-loss, the grid and its
# limits) is inherited from v6 and unconfirmed. There is no published law and no held-out run of it: held-out runs named
# `…-v5-…` are of v6, see `parse_run_name`.
DELPHI_V5 = dataclasses.replace(
    DELPHI,
    version="adamh_scaling_v5",
    hparams=WidthScaledAdamHParams(**dataclasses.asdict(DELPHI.hparams), reference_width=512),
    token_law=None,
    heldout_runs={},
)

# The deprecated first recipe, of a search on the same model at another reference point. Source: the earlier revision of
# `completed_adamh`, class `CompletedAdamHRecipe`, to the digit. There both rates fall with the square root of the
# horizon, the z-loss is not set, the grid has no limit on tokens per parameter, and a rate may sit exactly at its cap
# (here it must be below, which no real number notices). Its label is not public, so that no run name is read as its.
DELPHI_FIRST = dataclasses.replace(
    DELPHI,
    version="adamh_first",
    hparams=WidthScaledAdamHParams(
        reference_batch_size=8,
        reference_tokens=1e9,
        reference_width=512,
        reference_learning_rate=0.0010013084985803517,
        reference_adam_lr=0.0005204192548239702,
        reference_epsilon=9.309976507000956e-08,
        reference_beta2=0.9998999999999991,
        token_horizon_exponent=0.5,
        max_grad_norm=0.102,
        z_loss_weight=0.0,
    ),
    max_tokens_per_param=math.inf,
    token_law=None,
    heldout_runs={},
)
