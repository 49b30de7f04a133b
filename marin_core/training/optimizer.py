"""A plan's optimizer in Levanter's own configuration, the library's default for nothing that matters.

Imports Levanter, and with it JAX, inside the function: workers call it, nothing else does.
"""

from typing import TYPE_CHECKING, Any

from marin_core.recipes.hparams import AdamWParams, OptimizerParams

if TYPE_CHECKING:
    from levanter.optim.config import OptimizerConfig


def optimizer_config(params: OptimizerParams) -> "OptimizerConfig":
    """Linear warm-up, constant, linear decay, for either optimizer."""
    from levanter.optim.adamh import AdamHConfig
    from levanter.optim.config import AdamConfig

    shared: dict[str, Any] = {
        "learning_rate": params.learning_rate,
        "beta1": params.beta1,
        "beta2": params.beta2,
        "epsilon": params.epsilon,
        "max_grad_norm": params.max_grad_norm,
        "lr_schedule": "linear",
        "warmup": params.warmup,
        "decay": params.decay,
        "min_lr_ratio": params.min_lr_ratio,
    }
    if isinstance(params, AdamWParams):
        # The library's mask: matrices decay, the embedding and the norms do not.
        return AdamConfig(weight_decay=params.weight_decay, default_weight_decay_mask=True, **shared)
    return AdamHConfig(adam_lr=params.adam_lr, **shared)
