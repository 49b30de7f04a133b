"""A scaling recipe: from a budget in FLOPs to the candidate runs of its IsoFLOP curve.

Holds the arithmetic only; the constants are in `delphi.py` and `nano.py`, the transfer rule in `hparams.py`.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_core.errors import MarinError
from marin_core.recipes.hparams import AdamHParams, CompletedAdamHParams


class RecipeError(MarinError):
    """A budget or a setting that the recipe cannot serve; the message names the value and the remedy."""


def format_budget(flops: float) -> str:
    """The one text form of a budget: `3e18`, `1.8e19`. Parsed back by `float`."""
    mantissa, exponent = f"{flops:.5e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


@dataclass(frozen=True)
class TokenLaw:
    """Compute-optimal training tokens: D*(C) = coefficient * C^exponent, C in FLOPs."""

    coefficient: float
    exponent: float

    def tokens(self, flops: float) -> float:
        return self.coefficient * flops**self.exponent


@dataclass(frozen=True)
class Candidate:
    """One run of a budget: model shape, batch, length and optimizer settings.

    `params` counts as the published model cards do (QK-norm weights included); `tokens` is what the run really
    sees, `batch_size * steps * seq_len`.
    """

    flops: float
    hidden_dim: int
    num_layers: int
    num_heads: int
    batch_size: int
    seq_len: int
    steps: int
    tokens: int
    params: int
    optimizer: AdamHParams

    @property
    def key(self) -> str:
        """The partition key of this run, for instance `3e18-d1024`."""
        return f"{format_budget(self.flops)}-d{self.hidden_dim:04d}"

    def to_json(self) -> dict[str, float | int]:
        """The flat form that `marin recipe --json` prints; the optimizer's other settings follow from the recipe."""
        return {
            "flops": self.flops,
            "hidden_dim": self.hidden_dim,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "batch_size": self.batch_size,
            "seq_len": self.seq_len,
            "steps": self.steps,
            "tokens": self.tokens,
            "params": self.params,
            "learning_rate": self.optimizer.learning_rate,
            "adam_lr": self.optimizer.adam_lr,
            "epsilon": self.optimizer.epsilon,
            "beta2": self.optimizer.beta2,
        }


@dataclass(frozen=True)
class ScalingRecipe:
    """How to train at any budget. Two instances: `delphi.DELPHI` (published) and `nano.NANO` (laptop).

    Shapes: depth L = round(H / (depth_base + depth_slope * log2 H)); heads = H / head_dim with as many KV heads;
    gated MLP of mlp_ratio * H; untied embeddings. Widths run from `min_width` in steps of `width_step`
    (`wide_width_step` for budgets above `wide_step_above`).
    """

    name: str
    version: str
    hparams: CompletedAdamHParams
    seq_len: int
    vocab_size: int
    head_dim: int
    depth_base: float
    depth_slope: float
    min_width: int
    max_width: int
    width_step: int
    wide_width_step: int
    wide_step_above: float
    target_steps: int
    min_batch_size: int
    max_batch_size: int
    max_tokens_per_param: float
    precision: str
    eval_batch_size: int
    steps_per_eval: int
    steps_per_checkpoint: int
    gradient_checkpointing: bool
    mlp_ratio: int = 4
    # Largest model at `max_params_at` FLOPs; scales with the square root of the budget, never below this value.
    max_params: float = math.inf
    max_params_at: float = 1.0
    max_params_ceiling: float = math.inf
    token_law: TokenLaw | None = None
    # Batches that published runs of this recipe used instead of the recipe's own: budget -> sequences.
    batch_overrides: Mapping[float, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The constants; limits that are infinite are left out. `from_json` restores the recipe."""
        constants = {k: v for k, v in dataclasses.asdict(self).items() if v != math.inf}
        constants["hparams"] = self.hparams.to_json()
        constants["batch_overrides"] = {format_budget(c): batch for c, batch in self.batch_overrides.items()}
        return constants

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ScalingRecipe":
        law = data["token_law"]
        return cls(
            **{
                **data,
                "hparams": CompletedAdamHParams.from_json(data["hparams"]),
                "token_law": TokenLaw(**law) if law else None,
                "batch_overrides": {float(c): batch for c, batch in data["batch_overrides"].items()},
            }
        )

    def num_layers(self, hidden_dim: int) -> int:
        return max(1, round(hidden_dim / (self.depth_base + self.depth_slope * math.log2(hidden_dim))))

    def flops_per_token(self, hidden_dim: int) -> int:
        """Training FLOPs per token: three times the forward pass (gated MLP, MHA, full-length attention, LM head).

        Not 6N: the LM head and the attention scores count, the embedding look-up does not. Agrees with
        `levanter.utils.flop_utils.lm_flops_per_token`.
        """
        heads = hidden_dim // self.head_dim
        per_layer = 6 * self.mlp_ratio * hidden_dim**2 + 6 * hidden_dim**2 + 2 * hidden_dim**2
        per_layer += 4 * self.seq_len * hidden_dim + 3 * self.seq_len * heads
        return 3 * (self.num_layers(hidden_dim) * per_layer + 2 * hidden_dim * self.vocab_size)

    def params(self, hidden_dim: int) -> int:
        """Parameters as the published model cards count them, the two QK-norm weights of each layer included."""
        return self._params_without_qk_norm(hidden_dim) + self.num_layers(hidden_dim) * 2 * self.head_dim

    def _params_without_qk_norm(self, hidden_dim: int) -> int:
        layers = self.num_layers(hidden_dim)
        matrices = (4 + 3 * self.mlp_ratio) * hidden_dim**2
        return 2 * self.vocab_size * hidden_dim + layers * (matrices + 2 * hidden_dim) + hidden_dim

    def candidates(self, flops: float) -> list[Candidate]:
        """The grid of a budget, widths ascending.

        Raises:
            RecipeError: the budget is not a positive finite number, or admits no candidate.
        """
        if not (math.isfinite(flops) and flops > 0):
            raise RecipeError(f"budget {flops!r} is not a positive number of FLOPs; give one like 3e18")
        found = [c for width in self._widths(flops) if (c := self._candidate(flops, width)) is not None]
        if not found:
            raise RecipeError(
                f"budget {format_budget(flops)} FLOPs admits no run of recipe {self.name!r}: every width from "
                f"{self.min_width} needs a batch outside {self.min_batch_size}..{self.max_batch_size} sequences or "
                f"more than {self.max_tokens_per_param:g} tokens per parameter; give another budget"
            )
        return found

    def candidate(self, flops: float, hidden_dim: int) -> Candidate:
        """One cell of a budget's grid.

        Raises:
            RecipeError: the grid has no such width.
        """
        by_width = {c.hidden_dim: c for c in self.candidates(flops)}
        if hidden_dim not in by_width:
            widths = ", ".join(map(str, by_width))
            raise RecipeError(f"width {hidden_dim} is not in the grid of {format_budget(flops)} FLOPs: {widths}")
        return by_width[hidden_dim]

    def optimal(self, flops: float, law: TokenLaw | None = None) -> Candidate:
        """The candidate that a token law recommends: the fewest tokens that are at least D*, else the most.

        Raises:
            RecipeError: no candidate, or neither `law` nor a published one is known.
        """
        law = law or self.token_law
        if law is None:
            raise RecipeError(f"recipe {self.name!r} has no published token law; materialize delphi/* to fit one")
        by_tokens = sorted(self.candidates(flops), key=lambda c: c.tokens)
        chosen = next((c for c in by_tokens if c.tokens >= law.tokens(flops)), by_tokens[-1])
        return self.as_published(chosen)

    def as_published(self, candidate: Candidate) -> Candidate:
        """The run in the batch that published runs of its budget used, where that is another."""
        override = self.batch_overrides.get(candidate.flops)
        return self.with_batch_size(candidate, override) if override else candidate

    def with_batch_size(self, candidate: Candidate, batch_size: int) -> Candidate:
        """The same model and horizon at another batch; optimizer settings follow from the integer token count."""
        steps = round(candidate.tokens / (batch_size * self.seq_len))
        tokens = steps * batch_size * self.seq_len
        return self._build(
            candidate.flops, candidate.hidden_dim, batch_size, steps, self.hparams.at(batch_size, tokens)
        )

    def _widths(self, flops: float) -> Iterator[int]:
        step = self.width_step if flops <= self.wide_step_above else self.wide_width_step
        yield from range(self.min_width, self.max_width + 1, step)

    def _candidate(self, flops: float, hidden_dim: int) -> Candidate | None:
        params = self._params_without_qk_norm(hidden_dim)
        tokens = flops / self.flops_per_token(hidden_dim)
        limit = min(self.max_params_ceiling, self.max_params * max(1.0, math.sqrt(flops / self.max_params_at)))
        if params > limit or tokens / params > self.max_tokens_per_param:
            return None
        batch_size = self._batch_size(tokens)
        if not self.min_batch_size <= batch_size <= self.max_batch_size:
            return None
        steps = round(tokens / (batch_size * self.seq_len))
        # The sweep feeds the real-valued horizon to the transfer rule, not the rounded one.
        return self._build(flops, hidden_dim, batch_size, steps, self.hparams.at(batch_size, tokens))

    def _batch_size(self, tokens: float) -> int:
        """The power of two that reaches the horizon in at most `target_steps`, halved until no rate is at its cap."""
        exact = tokens / (self.target_steps * self.seq_len)
        if exact <= 0.5:
            return 0  # single sequences would fill less than half of the steps
        batch_size = 2 ** math.ceil(math.log2(exact))
        while batch_size > self.min_batch_size:
            if self.hparams.within_limits(self.hparams.at(batch_size, tokens)):
                break
            batch_size //= 2
        return batch_size

    def _build(self, flops: float, hidden_dim: int, batch_size: int, steps: int, optimizer: AdamHParams) -> Candidate:
        return Candidate(
            flops=flops,
            hidden_dim=hidden_dim,
            num_layers=self.num_layers(hidden_dim),
            num_heads=hidden_dim // self.head_dim,
            batch_size=batch_size,
            seq_len=self.seq_len,
            steps=steps,
            tokens=steps * batch_size * self.seq_len,
            params=self.params(hidden_dim),
            optimizer=optimizer,
        )
