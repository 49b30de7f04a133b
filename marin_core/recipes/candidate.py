"""One run of a budget, how a budget is written, and the law that says which run of a budget is the best."""

from dataclasses import dataclass

from marin_core.recipes.hparams import AdamHParams


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

    @staticmethod
    def key_of(flops: float, hidden_dim: int) -> str:
        """The partition key of a budget's run of a width, for instance `3e18-d1024`."""
        return f"{format_budget(flops)}-d{hidden_dim:04d}"

    @property
    def key(self) -> str:
        """The partition key of this run."""
        return self.key_of(self.flops, self.hidden_dim)

    def to_json(self) -> dict[str, float | int]:
        """The flat form that `delphi/recipe` lists; the optimizer's other settings follow from the recipe."""
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
