"""Optimizer settings, and their transfer for AdamH: from one tuned reference run to any batch size and token horizon.

Does not choose the model or the batch (`recipe.py`), and does not build an optimizer (`marin_core.training`). The
constants' values, and where each is from, are in `delphi.py` and `nano.py`; defaults here are those of the published
Delphi recipe.
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
class AdamWParams:
    """As `AdamHParams`, for AdamW: Adam at one rate for every weight, with decoupled weight decay.

    A step takes `weight_decay` times the rate off each weight of the matrices, the head too; the embedding and the
    norms do not decay, which are what AdamH leaves to plain Adam.
    """

    learning_rate: float
    weight_decay: float
    epsilon: float
    beta1: float
    beta2: float
    max_grad_norm: float
    warmup: float
    decay: float
    min_lr_ratio: float
    z_loss_weight: float


OptimizerParams = AdamHParams | AdamWParams


def optimizer_kind(data: Mapping[str, Any]) -> type[OptimizerParams]:
    """Whose settings a mapping has, told by their names: only AdamW's decay, and have no second rate."""
    return AdamWParams if "weight_decay" in data and "adam_lr" not in data else AdamHParams


@dataclass(frozen=True)
class CompletedAdamHParams:
    """ "Complete(d)P"-style transfer rule of the Delphi suite, anchored on one tuned reference run.

    With batch B (sequences) and horizon T (tokens), reference values carrying a 0:

        learning rate  = min(cap, lr0   * sqrt(B / B0) * (T0 / T)^0.3)
        Adam rate      = min(cap, adam0 * sqrt((B * T0) / (B0 * T)))
        epsilon        = eps0 * sqrt((B0 * T) / (B * T0))
        beta2          = clip(beta2_0^(B / B0), beta2_min, beta2_max)     constant token half-life

    Width does not appear: AdamH's norm-preserving update makes the transfer over width implicit. Source: the
    public Delphi recipe (marin-community/marin, `completed_adamh`). To fork the rule, subclass and override `at`, or
    `at_width` where the width matters.
    """

    # B0: sequences a step of the tuned run.
    reference_batch_size: int
    # T0: training tokens of the tuned run.
    reference_tokens: float
    # lr0: peak rate of AdamH, relative to a matrix's norm, per step.
    reference_learning_rate: float
    # adam0: peak rate of plain Adam, per step.
    reference_adam_lr: float
    # eps0: added to the root of the second moment, in units of the gradient.
    reference_epsilon: float
    # beta2_0: decay of the second moment, per step.
    reference_beta2: float
    # Decay of the first moment, per step; the same at every batch (public recipe: 0.9).
    beta1: float = 0.9
    # Largest global norm of the gradients, of each parameter group for itself (public recipe: 0.1).
    max_grad_norm: float = 0.1
    # Largest value of either rate, per step (public recipe: 0.01).
    learning_rate_cap: float = 0.01
    # Exponent of T0 / T in the AdamH rate (public recipe: 0.3); no unit.
    token_horizon_exponent: float = 0.3
    # Limits of beta2, per step (public recipe: 0.9 and 0.9999).
    beta2_min: float = 0.9
    beta2_max: float = 0.9999
    # Linear warmup and linear decay, fractions of the run; constant between (public recipe: 0.1, 0.2).
    warmup: float = 0.1
    decay: float = 0.2
    # Final rate over peak rate (public recipe: 0).
    min_lr_ratio: float = 0.0
    # Weight of the squared log-partition of the softmax in the loss (public sweep: 1e-7); no unit.
    z_loss_weight: float = 1e-7

    def to_json(self) -> dict[str, Any]:
        """The constants, and under `rule` the class that applies them: a fork is another rule."""
        rule = type(self)
        return {**dataclasses.asdict(self), "rule": f"{rule.__module__}:{rule.__qualname__}"}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "CompletedAdamHParams":
        """The rule that `to_json` described, of its own class.

        Raises:
            MarinError: there is no such class.
        """
        rule = rule_of(data["rule"])
        return rule(**{key: value for key, value in data.items() if key != "rule"})

    def at(self, batch_size: int, tokens: float) -> AdamHParams:
        """The settings for a batch of `batch_size` sequences and a horizon of `tokens` training tokens."""
        batch_ratio = batch_size / self.reference_batch_size
        horizon_ratio = self.reference_tokens / tokens
        noise = self._noise(batch_size, tokens)
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

    def at_width(self, hidden_dim: int, batch_size: int, tokens: float) -> AdamHParams:
        """The settings for a model of a width: those of `at`, since this rule does not depend on it."""
        return self.at(batch_size, tokens)

    def within_limits(self, params: AdamHParams) -> bool:
        """Whether no rate sits at its cap and beta2 is above its floor: the rule then still means what it says."""
        return (
            params.learning_rate < self.learning_rate_cap
            and params.adam_lr < self.learning_rate_cap
            and params.beta2 > self.beta2_min
        )

    def _noise(self, batch_size: int, tokens: float) -> float:
        """sqrt((B * T0) / (B0 * T)): the root of the share of the run that one step sees, over the reference's."""
        return math.sqrt((batch_size / self.reference_batch_size) * (self.reference_tokens / tokens))


def rule_of(name: str) -> type[CompletedAdamHParams]:
    """The class that `module:Class` names.

    Raises:
        MarinError: it cannot be imported, or is no such rule.
    """
    module, _, attribute = name.partition(":")
    try:
        rule = getattr(importlib.import_module(module), attribute)
    # An empty module is a ValueError, a relative one a TypeError.
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        raise MarinError(
            f"hyperparameter rule {name!r} cannot be imported ({error}); put its folder on PYTHONPATH, on workers too"
        ) from None
    if not (isinstance(rule, type) and issubclass(rule, CompletedAdamHParams)):
        raise MarinError(f"hyperparameter rule {name!r} is no subclass of CompletedAdamHParams; make it one")
    return rule


@dataclass(frozen=True)
class WidthScaledAdamHParams(CompletedAdamHParams):
    """The rule of the recipes before v6: as `CompletedAdamHParams`, but the Adam rate falls with the width H.

        Adam rate = min(cap, adam0 * sqrt((B * T0) / (B0 * T)) * H0 / H)

    Source: the earlier revision of the public `completed_adamh`, and that the suite's launch script calls v6 the
    recipe with "no /H on adam_lr". `at` gives the settings at the reference width.
    """

    # H0: width of the tuned run (public recipe: 512).
    reference_width: int = 512

    def at_width(self, hidden_dim: int, batch_size: int, tokens: float) -> AdamHParams:
        """The settings for a model of a width."""
        adam_lr = self.reference_adam_lr * self._noise(batch_size, tokens) * self.reference_width / hidden_dim
        return dataclasses.replace(self.at(batch_size, tokens), adam_lr=min(self.learning_rate_cap, adam_lr))
