"""A trained model as what a completions server asks: log-probabilities of given tokens, and tokens that follow.

Imports JAX and Levanter inside functions: workers call them, nothing else does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.evals.windows import Batch, Window, batches

if TYPE_CHECKING:
    from levanter.inference.engine import InferenceEngine
    from levanter.inference.jit_scheduler import SeqDecodingParams

    from marin_core.training.model import TrainedModel

# Lab's choice: sequences that are continued at a time. Each has the cache of a whole context.
_CONTINUED = 8
# Batches of fewer tokens than this have one shape: computing empty rows is cheaper than compiling another program.
_SMALL_BATCH = 16_384
# Stop sequences of a request that end its decoding early, and their length; others are found in the text afterwards.
_STOPS, _STOP_TOKENS = 4, 16


@dataclass(frozen=True)
class TokenScores:
    """What a model thinks of a sequence of n tokens. `actual` holds the log-probability in nats of every token but the
    first, (n - 1,) float32; `likeliest` and `likeliest_logprob` which token it expected after every one, (n,)."""

    actual: np.ndarray
    likeliest: np.ndarray
    likeliest_logprob: np.ndarray


@dataclass(frozen=True)
class Sampling:
    """How a sequence is continued: by at most `max_tokens`, up to one of the token sequences `stops`. At `temperature`
    0 the likeliest token is taken, else one of those that make up `top_p` of the probability."""

    max_tokens: int
    stops: tuple[tuple[int, ...], ...]
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


class ServedModel:
    """A trained model, for one thread: that in which its device mesh is set."""

    def __init__(self, trained: "TrainedModel"):
        import jax

        self._trained = trained
        self._devices = len(jax.devices())
        self.context = trained.plan.seq_len

    def score(self, sequences: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score token sequences, each of 1 to `context` tokens and by itself.

        They are packed into batches of few shapes, so that XLA compiles a handful of programs.
        """
        import jax

        scores: list[TokenScores | None] = [None] * len(sequences)
        rows = self._trained.trainer.EvalBatch.size
        parts = [Window(number, 0, np.asarray(ids, np.int32)) for number, ids in enumerate(sequences)]
        for batch in batches(parts, rows, self.context):
            tokens, segments = self._fitted(batch, rows)
            found = [np.asarray(each) for each in jax.device_get(self._scorer(tokens, segments))]
            for window, row, at in batch.places:
                actual, likeliest, logprob = (each[row, at : at + len(window.ids)] for each in found)
                scores[window.document] = TokenScores(actual[:-1], likeliest, logprob)
        return [each for each in scores if each is not None]

    def continue_(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[list[int]]:
        """The tokens that follow each prompt, with those of a stop sequence if one ended them.

        A prompt has at least one token, and with `max_tokens` at most `context`.
        """
        continued: list[list[int]] = []
        for start in range(0, len(prompts), _CONTINUED):
            continued += self._continue(prompts[start : start + _CONTINUED], sampling)
        return continued

    def _fitted(self, batch: Batch, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """A batch without most of its empty rows: a quarter, a sixteenth … of all rows, if that is enough."""
        needed = max(row for _, row, _ in batch.places) + 1
        while rows * self.context > _SMALL_BATCH and rows % (4 * self._devices) == 0 and needed <= rows // 4:
            rows //= 4
        return batch.tokens[:rows], batch.segments[:rows]

    @cached_property
    def _scorer(self) -> "Callable[[np.ndarray, np.ndarray], Any]":
        """From tokens and segments, (rows, context) each, to three arrays of that shape: the log-probability of the
        next token, the likeliest next token, and the log-probability of that."""
        import haliax as hax
        import jax.numpy as jnp
        from levanter.layers.attention import AttentionMask
        from levanter.models.lm_model import split_activations
        from levanter.models.loss import fused_cross_entropy_loss_and_logsumexp_penalty
        from levanter.utils.tree_utils import inference_mode

        trainer, name = self._trained.trainer, self._trained.trainer.EvalBatch.name

        @hax.named_jit(axis_resources=trainer.compute_axis_mapping, out_axis_resources={})
        def score(model: Any, tokens: Any, segments: Any) -> Any:
            model = trainer.mp.cast_to_compute(inference_mode(model, True))
            mask = AttentionMask.causal().with_segment_ids(segments)
            activations, _ = split_activations(model.activations(tokens, attn_mask=mask))
            activations, head = activations.astype(jnp.float32), model.get_lm_head().astype(jnp.float32)
            actual = hax.roll(tokens, -1, "position")
            loss, likeliest = fused_cross_entropy_loss_and_logsumexp_penalty(
                activations,
                head,
                Contract=model.Embed,
                Label=model.Vocab,
                target_y=actual,
                reduction=None,
                logsumexp_weight=0.0,
                return_argmax=True,
            )

            def logit(ids: Any) -> Any:
                return hax.dot(activations, head.take(model.Vocab, ids), axis=model.Embed)

            # Exactly the actual one's where that is the likeliest: whoever compares the two must find them equal.
            best: Any = hax.maximum(-loss, -loss + (logit(likeliest) - logit(actual)))
            axes = tokens.axes
            return tuple(each.rearrange(axes).array for each in (-loss, likeliest, best))

        def run(tokens: np.ndarray, segments: np.ndarray) -> Any:
            axes = (hax.Axis(name, len(tokens)), self._trained.model.Pos)
            return score(self._trained.model, hax.named(tokens, axes), hax.named(segments, axes))

        return run

    def _continue(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[list[int]]:
        import haliax as hax
        from levanter.inference.engine import Request

        with hax.axis_mapping(self._trained.trainer.compute_axis_mapping):
            requests = [
                Request(list(prompt), number, _decoding(sampling, len(prompt), number), 1)
                for number, prompt in enumerate(prompts)
            ]
            return [[int(token) for token in tokens] for tokens in self._engine.generate(requests).tokens]

    @cached_property
    def _engine(self) -> "InferenceEngine":
        """Levanter's, with room for `_CONTINUED` whole contexts: it would leave out, silently, a prompt that does not
        fit."""
        from levanter.inference.engine import InferenceEngine, InferenceEngineConfig
        from levanter.utils.tree_utils import inference_mode

        trainer = self._trained.trainer
        page = min(128, self.context)
        config = InferenceEngineConfig(
            max_seq_len=self.context,
            page_size=page,
            # Its loop ends after context // max_rounds calls, which must be all of the context.
            max_rounds=math.gcd(32, self.context),
            max_stop_seqs=_STOPS,
            max_stop_tokens=_STOP_TOKENS,
            max_seqs=_CONTINUED,
            max_pages=_CONTINUED * math.ceil(self.context / page),
            compute_dtype=trainer.mp.compute_dtype,
            max_seqs_in_prefill=_CONTINUED,
            max_prefill_size=_CONTINUED * self.context,
        )
        model = trainer.mp.cast_to_compute(inference_mode(self._trained.model, True))
        return InferenceEngine.from_model_with_config(model, None, config, trainer.compute_axis_mapping)


def _decoding(sampling: Sampling, prompt_tokens: int, number: int) -> "SeqDecodingParams":
    import haliax as hax
    import jax
    import jax.numpy as jnp
    from levanter.inference.jit_scheduler import SeqDecodingParams
    from levanter.inference.utils import INVALID

    stops = np.full((_STOPS, _STOP_TOKENS), INVALID, np.int32)
    for row, stop in enumerate([each for each in sampling.stops if 0 < len(each) <= _STOP_TOKENS][:_STOPS]):
        stops[row, -len(stop) :] = stop
    return SeqDecodingParams(
        max_num_tokens=jnp.asarray(prompt_tokens + sampling.max_tokens, jnp.int32),
        stop_tokens=hax.named(jnp.asarray(stops), ("stop_seq", "position")),
        temperature=jnp.asarray(sampling.temperature, jnp.float32),
        top_p=jnp.asarray(sampling.top_p, jnp.float32),
        key=jax.random.fold_in(jax.random.PRNGKey(sampling.seed), number),
    )
