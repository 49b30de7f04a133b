"""A scaling recipe: from a budget in FLOPs to the candidate runs of its IsoFLOP curve.

Holds the arithmetic only; the constants, and where each is from, are in `delphi.py` and `nano.py`, the transfer rule in
`hparams.py`.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_core.recipes.candidate import Candidate, TokenLaw, format_budget
from marin_core.recipes.errors import RecipeError
from marin_core.recipes.heldout import HeldOutRun
from marin_core.recipes.hparams import AdamHParams, CompletedAdamHParams
from marin_core.recipes.shape import params_without_qk_norm, qk_norm_params, training_flops_per_token
from marin_core.recipes.versions import KnownVersion


@dataclass(frozen=True)
class ScalingRecipe:
    """How to train at any budget. `RECIPES` are those in use, `VERSIONS` also the superseded ones.

    Shapes: depth L = round(H / (depth_base + depth_slope * log2 H)); heads = H / head_dim with as many KV heads;
    gated MLP of mlp_ratio * H; untied embeddings. Widths run from `min_width` in steps of `width_step`
    (`wide_width_step` for budgets above `wide_step_above`). Source of the formulas: marin-community/marin,
    `completed_adamh` (public Marin record).
    """

    # What it is called, apart from its version.
    name: str
    # Which constants these are: one of the known versions, or a fork's own text.
    version: KnownVersion | str
    # From the reference run to the optimizer settings of any other.
    hparams: CompletedAdamHParams
    # Tokens a sequence, in training and evaluation.
    seq_len: int
    # Entries of the embedding and of the LM head.
    vocab_size: int
    # Width of an attention head.
    head_dim: int
    # Depth over width, see above: width per layer, and by how much that grows with every doubling of the width.
    depth_base: float
    depth_slope: float
    # The grid's widths (residual stream), their step, and the step for budgets above `wide_step_above` FLOPs.
    min_width: int
    max_width: int
    width_step: int
    wide_width_step: int
    wide_step_above: float
    # Steps that a run should have at most; the batch is the smallest power of two that keeps to it.
    target_steps: int
    # Limits of the batch, in sequences; a cell that needs another is left out.
    min_batch_size: int
    max_batch_size: int
    # Cells of more training tokens per parameter are left out.
    max_tokens_per_param: float
    # jmp policy of parameters and computation.
    precision: str
    # Sequences a batch of the evaluations during training.
    eval_batch_size: int
    # Steps from one evaluation to the next, and from one permanent checkpoint to the next.
    steps_per_eval: int
    steps_per_checkpoint: int
    # Whether layers are computed again in the backward pass, for memory.
    gradient_checkpointing: bool
    # Width of the MLP over that of the residual stream.
    mlp_ratio: int = 4
    # Largest model, in parameters without QK-norm weights: at `max_params_at` FLOPs. It scales with the square root of
    # the budget, is never below this value and never above `max_params_ceiling`.
    max_params: float = math.inf
    max_params_at: float = 1.0
    max_params_ceiling: float = math.inf
    # Which tokens are compute-optimal, where that is published.
    token_law: TokenLaw | None = None
    # What held-out runs have of their own (batch, seeds, z-loss), by budget in FLOPs.
    heldout_runs: Mapping[float, HeldOutRun] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The constants; limits that are infinite are left out. `from_json` restores the recipe."""
        constants = {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != math.inf}
        constants["hparams"] = self.hparams.to_json()
        constants["token_law"] = dataclasses.asdict(self.token_law) if self.token_law else None
        constants["heldout_runs"] = {format_budget(c): run.to_json() for c, run in self.heldout_runs.items()}
        return constants

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ScalingRecipe":
        """The recipe that `to_json` described."""
        law = data["token_law"]
        return cls(
            **{
                "max_tokens_per_param": math.inf,
                **data,
                "hparams": CompletedAdamHParams.from_json(data["hparams"]),
                "token_law": TokenLaw(**law) if law else None,
                "heldout_runs": {float(c): HeldOutRun.from_json(run) for c, run in data["heldout_runs"].items()},
            }
        )

    def num_layers(self, hidden_dim: int) -> int:
        """Depth of a model of a width, at least 1."""
        return max(1, round(hidden_dim / (self.depth_base + self.depth_slope * math.log2(hidden_dim))))

    def flops_per_token(self, hidden_dim: int) -> int:
        """Training FLOPs per token of a model of a width."""
        return training_flops_per_token(
            hidden_dim=hidden_dim,
            num_layers=self.num_layers(hidden_dim),
            num_heads=hidden_dim // self.head_dim,
            mlp_dim=self.mlp_ratio * hidden_dim,
            seq_len=self.seq_len,
            vocab_size=self.vocab_size,
        )

    def params(self, hidden_dim: int) -> int:
        """Parameters as the published model cards count them, the two QK-norm weights of each layer included."""
        qk_norm = qk_norm_params(num_layers=self.num_layers(hidden_dim), head_dim=self.head_dim)
        return self.params_without_qk_norm(hidden_dim) + qk_norm

    def params_without_qk_norm(self, hidden_dim: int) -> int:
        """Parameters as Levanter counts them, and as the limits of the grid do."""
        return params_without_qk_norm(
            hidden_dim=hidden_dim,
            num_layers=self.num_layers(hidden_dim),
            mlp_dim=self.mlp_ratio * hidden_dim,
            vocab_size=self.vocab_size,
        )

    def max_params_of(self, flops: float) -> float:
        """Largest model of a budget's grid, in parameters without QK-norm weights."""
        return min(self.max_params_ceiling, self.max_params * max(1.0, math.sqrt(flops / self.max_params_at)))

    def exact_tokens(self, flops: float, hidden_dim: int) -> float:
        """Tokens that a budget buys at a width, before they are rounded to whole steps."""
        return flops / self.flops_per_token(hidden_dim)

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
        """The run with the batch and the z-loss that held-out runs of its budget have, where those are others."""
        own = self.heldout_runs.get(candidate.flops)
        if own is None:
            return candidate
        run = self.with_batch_size(candidate, own.batch_size) if own.batch_size else candidate
        if own.z_loss_weight is None:
            return run
        return dataclasses.replace(run, optimizer=dataclasses.replace(run.optimizer, z_loss_weight=own.z_loss_weight))

    def seeds(self, flops: float) -> tuple[int, ...]:
        """Seeds of the held-out runs of a budget; empty where nothing is said, and the profile's seed then holds."""
        own = self.heldout_runs.get(flops)
        return own.seeds if own else ()

    def with_batch_size(self, candidate: Candidate, batch_size: int) -> Candidate:
        """The same model and horizon at another batch; optimizer settings follow from the integer token count."""
        width = candidate.hidden_dim
        steps = round(candidate.tokens / (batch_size * self.seq_len))
        tokens = steps * batch_size * self.seq_len
        return self._build(candidate.flops, width, batch_size, steps, self.hparams.at_width(width, batch_size, tokens))

    def run_name(self, candidate: Candidate) -> str:
        """The published pattern of a sweep's run names, for instance `isoflop-3e+18-d1024-L11-B8-adamh_scaling_v6`.

        Its budget is rounded to one digit (1.8e19 is `2e+19`); `parse_run_name` finds which was meant.
        """
        shape = f"d{candidate.hidden_dim}-L{candidate.num_layers}-B{candidate.batch_size}"
        return f"isoflop-{candidate.flops:.0e}-{shape}-{self.version}"

    def tried_batches(self, flops: float, hidden_dim: int) -> tuple[int, ...]:
        """Batches in the order in which a cell tries them, in sequences; it has the last. Empty if nothing fits.

        The first is the power of two that reaches the horizon in at most `target_steps`; each next is half of the one
        before, until no rate is at its cap and beta2 above its floor.
        """
        tokens = self.exact_tokens(flops, hidden_dim)
        exact = tokens / (self.target_steps * self.seq_len)
        if exact <= 0.5:
            return ()  # single sequences would fill less than half of the steps
        tried = [2 ** math.ceil(math.log2(exact))]
        while tried[-1] > self.min_batch_size:
            if self.hparams.within_limits(self.hparams.at_width(hidden_dim, tried[-1], tokens)):
                break
            tried.append(tried[-1] // 2)
        return tuple(tried)

    def _widths(self, flops: float) -> Iterator[int]:
        step = self.width_step if flops <= self.wide_step_above else self.wide_width_step
        yield from range(self.min_width, self.max_width + 1, step)

    def _candidate(self, flops: float, hidden_dim: int) -> Candidate | None:
        params, tokens = self.params_without_qk_norm(hidden_dim), self.exact_tokens(flops, hidden_dim)
        if params > self.max_params_of(flops) or tokens / params > self.max_tokens_per_param:
            return None
        tried = self.tried_batches(flops, hidden_dim)
        if not (tried and self.min_batch_size <= tried[-1] <= self.max_batch_size):
            return None
        batch_size = tried[-1]
        steps = round(tokens / (batch_size * self.seq_len))
        # The sweep feeds the real-valued horizon to the transfer rule, not the rounded one.
        optimizer = self.hparams.at_width(hidden_dim, batch_size, tokens)
        return self._build(flops, hidden_dim, batch_size, steps, optimizer)

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
