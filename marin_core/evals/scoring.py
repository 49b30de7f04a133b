"""The model's part of a scoring: the loss of every token of some documents.

Imports JAX and Levanter inside functions: workers call them, nothing else does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.evals.windows import Batch, batches, windows

if TYPE_CHECKING:
    from marin_core.training.model import TrainedModel


@dataclass(frozen=True)
class Speed:
    """`compile_seconds` are those of the first batch, `seconds` those of all others, which had `tokens` predicted."""

    compile_seconds: float
    seconds: float
    tokens: int

    def to_json(self) -> dict[str, Any]:
        rate = {"tokens_per_second": round(self.tokens / self.seconds, 1)} if self.tokens and self.seconds else {}
        return {"compile_seconds": round(self.compile_seconds, 3), "seconds": round(self.seconds, 3), **rate}


def token_losses(
    trained: "TrainedModel", head: int, documents: Sequence[np.ndarray], check: Callable[[], None] = lambda: None
) -> tuple[list[np.ndarray], Speed]:
    """The loss of every token of documents (ids, (tokens,) int32), in nats: (tokens,) float32 each.

    The first token is predicted from `head`. Documents are cut into windows of the plan's sequence length, and windows
    packed into batches of one shape, so that XLA compiles one program. `check` is called before each batch.
    """
    import jax

    losses = [np.zeros(len(ids), np.float32) for ids in documents]
    seq_len, rows = trained.plan.seq_len, trained.trainer.EvalBatch.size
    score = _scorer(trained)
    took, tokens = [], []
    for batch in batches(list(windows(head, documents, seq_len)), rows, seq_len):
        check()
        began = time.monotonic()
        scored = np.asarray(jax.device_get(score(batch)))
        took.append(time.monotonic() - began)
        for window, row, at in batch.places:
            predicted = len(window.ids) - 1
            losses[window.document][window.first : window.first + predicted] = scored[row, at : at + predicted]
        tokens.append(int(batch.weights.sum()))
    return losses, Speed(sum(took[:1]), sum(took[1:]), sum(tokens[1:]))


def _scorer(trained: "TrainedModel") -> "Callable[[Batch], Any]":
    """From a batch to its losses, (rows, seq_len) float32, at the position before the token that each is of."""
    import haliax as hax
    from levanter.layers.attention import AttentionMask
    from levanter.models.lm_model import LmExample
    from levanter.utils.tree_utils import inference_mode

    trainer = trained.trainer
    axes = (trainer.EvalBatch, trained.model.Pos)

    @hax.named_jit(axis_resources=trainer.compute_axis_mapping)
    def losses(model: Any, tokens: Any, segments: Any, weights: Any) -> Any:
        model = trainer.mp.cast_to_compute(inference_mode(model, True))
        mask = AttentionMask.causal().with_segment_ids(segments)
        example = LmExample(tokens=tokens, loss_weight=weights, attn_mask=mask)
        return model.compute_next_token_loss(example, reduction=None, reduction_axis=()).rearrange(axes).array

    def score(batch: Batch) -> Any:
        arrays = (batch.tokens, batch.segments, batch.weights)
        return losses(trained.model, *(hax.named(array, axes) for array in arrays))

    return score
