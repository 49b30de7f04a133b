"""What a plan asks of hardware before it runs: memory, parallelism and time. Pure arithmetic on plans.

Two answers about memory: what the published launches reserved, which chooses a slice with room to spare, and what no
run can do without, which tells that a slice is too small. Between the two a run may fit; the published runs of the
larger held-out budgets did.
"""

import math

from marin_core.errors import MarinError
from marin_core.recipes.plan import TrainPlan

# f32 parameters and two f32 moments.
_STATE_BYTES = 3 * 4
# Gradients in compute precision, which is 2 bytes.
_GRADIENT_BYTES = 2


def hbm_bytes(plan: TrainPlan) -> float:
    """HBM that the published launches reserve for a run, all chips together, in bytes.

    2 · (3·4·N + activations + 2·V·H), where activations are max(⌊3L/4⌋, 4) layers of B·S·(2H + 8H + 2·mlp_dim) bytes.
    Source: the memory estimate of marin-community/marin's `completed_adamh`, by which its sweep chose slices.
    """
    layers = max(3 * plan.num_layers // 4, 4)
    parameters = _STATE_BYTES * plan.params
    return 2.0 * (parameters + layers * _layer_bytes(plan) + 2 * plan.vocab_size * plan.hidden_dim)


def least_hbm_bytes(plan: TrainPlan) -> float:
    """HBM below which a run cannot work, all chips together, in bytes.

    Held at once at the start of the backward pass: parameters and two moments in f32, the stacked gradients in compute
    precision, and of every layer its input (with gradient checkpointing) or all of its activations (without).
    """
    saved = 2 * plan.batch_size * plan.seq_len * plan.hidden_dim if plan.gradient_checkpointing else _layer_bytes(plan)
    return (_STATE_BYTES + _GRADIENT_BYTES) * plan.params + plan.num_layers * saved


def tensor_parallel_degree(batch_size: int, hidden_dim: int, chips: int, *, maximum: int) -> int:
    """Chips that share one sequence, as the published launches chose it: `maximum` was 4 in the sweep, 8 held out.

    1 where there are as many sequences as chips, else the power of two that leaves a sequence to each group; doubled
    until it divides the chips and the rest divides the width.

    Raises:
        MarinError: that would be more than `maximum`.
    """
    degree = 1 if batch_size >= chips else 2 ** math.ceil(math.log2(math.ceil(chips / batch_size)))
    while degree <= min(maximum, chips):
        if chips % degree == 0 and hidden_dim % (chips // degree) == 0:
            return degree
        degree *= 2
    raise MarinError(
        f"batch {batch_size} of width {hidden_dim} on {chips} chips needs more than {maximum} chips to a sequence; "
        "use fewer chips"
    )


def training_seconds(flops: float, peak_flops: float, mfu: float) -> float:
    """Seconds of training, evaluations and compilation not counted, at a model FLOPs utilization.

    `flops` are training FLOPs as a plan's budget counts them (LM head and attention scores included, unlike 6·N·D);
    `peak_flops` is FLOP/s of all chips together.
    """
    return flops / (peak_flops * mfu)


def _layer_bytes(plan: TrainPlan) -> int:
    """Activations of one layer for a whole batch."""
    return plan.batch_size * plan.seq_len * (2 * plan.hidden_dim + 8 * plan.hidden_dim + 2 * plan.mlp_dim)
