"""Hyperparameter transfer for AdamH: from one tuned reference run to any batch size and token horizon.

Does not choose the model or the batch (`recipe.py`), and does not build an optimizer (`marin_core.training`).
"""

import dataclasses
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_core.errors import MarinError


@dataclass(frozen=True)
class AdamHParams:
    """Every optimizer setting of one run. Rates are peak values; the schedule's shape is in fractions of the run.

    AdamH (`levanter.optim.adamh`) keeps the Frobenius norm of each weight matrix constant and so needs no weight
    decay; `adam_lr` drives what it leaves to plain Adam (embedding, norms).
    """

    learning_rate: float
    adam_lr: float
    epsilon: float
    beta1: float
    beta2: float
    max_grad_norm: float
    warmup: float
    decay: float
    min_lr_ratio: float
    z_loss_weight: float


@dataclass(frozen=True)
class CompletedAdamHParams:
    """ "Complete(d)P"-style transfer rule of the Delphi suite, anchored on one tuned reference run.

    With batch B (sequences) and horizon T (tokens), reference values carrying a 0:

        learning rate  = min(cap, lr0   * sqrt(B / B0) * (T0 / T)^0.3)
        Adam rate      = min(cap, adam0 * sqrt((B * T0) / (B0 * T)))
        epsilon        = eps0 * sqrt((B0 * T) / (B * T0))
        beta2          = clip(beta2_0^(B / B0), beta2_min, beta2_max)     constant token half-life

    Width does not appear: AdamH's norm-preserving update makes the transfer over width implicit. Source: the
    public Delphi recipe (marin-community/marin, `completed_adamh`). To fork the rule, subclass and override `at`.
    """

    reference_batch_size: int
    reference_tokens: float
    reference_learning_rate: float
    reference_adam_lr: float
    reference_epsilon: float
    reference_beta2: float
    beta1: float = 0.9
    max_grad_norm: float = 0.1
    learning_rate_cap: float = 0.01
    token_horizon_exponent: float = 0.3
    beta2_min: float = 0.9
    beta2_max: float = 0.9999
    warmup: float = 0.1
    decay: float = 0.2
    min_lr_ratio: float = 0.0
    z_loss_weight: float = 1e-7

    def to_json(self) -> dict[str, Any]:
        """The constants, and under `rule` the class that applies them: a fork is another rule."""
        rule = type(self)
        return {**dataclasses.asdict(self), "rule": f"{rule.__module__}:{rule.__qualname__}"}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "CompletedAdamHParams":
        """The rule that `to_json` described, of its own class.

        Raises:
            MarinError: there is no such class any more.
        """
        module, _, name = data["rule"].partition(":")
        try:
            rule = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            raise MarinError(f"hyperparameter rule {data['rule']!r} cannot be imported; restore the class") from None
        return rule(**{key: value for key, value in data.items() if key != "rule"})

    def at(self, batch_size: int, tokens: float) -> AdamHParams:
        """The settings for a batch of `batch_size` sequences and a horizon of `tokens` training tokens."""
        batch_ratio = batch_size / self.reference_batch_size
        horizon_ratio = self.reference_tokens / tokens
        noise = math.sqrt(batch_ratio * horizon_ratio)
        learning_rate = self.reference_learning_rate * math.sqrt(batch_ratio)
        learning_rate *= horizon_ratio**self.token_horizon_exponent
        beta2 = self.reference_beta2**batch_ratio
        return AdamHParams(
            learning_rate=min(self.learning_rate_cap, learning_rate),
            adam_lr=min(self.learning_rate_cap, self.reference_adam_lr * noise),
            epsilon=self.reference_epsilon / noise,
            beta1=self.beta1,
            beta2=min(self.beta2_max, max(self.beta2_min, beta2)),
            max_grad_norm=self.max_grad_norm,
            warmup=self.warmup,
            decay=self.decay,
            min_lr_ratio=self.min_lr_ratio,
            z_loss_weight=self.z_loss_weight,
        )

    def within_limits(self, params: AdamHParams) -> bool:
        """Whether no rate sits at its cap and beta2 is above its floor: the rule then still means what it says."""
        return (
            params.learning_rate < self.learning_rate_cap
            and params.adam_lr < self.learning_rate_cap
            and params.beta2 > self.beta2_min
        )
