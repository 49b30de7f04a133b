"""A training loop by hand in JAX and optax: the model, loss and optimizer of a TrainPlan and nothing around them.

What the lab's step is compared with. Qwen3-style decoder (pre-norm RMSNorm, QK-norm, RoPE with Llama-3 scaling, SwiGLU,
untied embeddings, no attention across documents), AdamH on matrices and Adam elsewhere, each clipped for itself, and a
warmup-stable-decay schedule, as the public Marin record describes them. Parameters are float32, layers stacked for
`lax.scan`; no mesh, no callbacks, no checkpoints, no log.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from marin_core.recipes import AdamHParams, TrainPlan

# Arrays by name, those of the layers under `layers`.
Params = Any
Step = Callable[[Params, Any, jax.Array], tuple[Params, Any, jax.Array]]

NORM_EPSILON = 1e-5
# RoPE with Llama-3 scaling: base, factor, low and high frequency factors, original context (public Marin record).
ROPE = (500_000.0, 8.0, 1.0, 4.0, 8192)
# What plain Adam updates; the other matrices are AdamH's.
ADAM = ("embedding", "attention_norm", "mlp_norm", "q_norm", "k_norm", "final_norm")


def parameters(model: Any) -> Params:
    """Copies of a Levanter model's parameters in this module's shapes: matrices [in, out], of layers [layer, in, out],
    attention heads side by side in their width."""
    layers = model.transformer.layers.stacked
    attention, mlp = layers.self_attn, layers.mlp
    width, depth = model.config.hidden_dim, model.config.num_layers

    def stacked(linear: Any, rows: int) -> jax.Array:
        """A projection [layer, out…, in…] with `rows` outputs in all, transposed."""
        return jnp.array(linear.weight.array.reshape(depth, rows, -1).swapaxes(1, 2))

    heads = model.config.num_heads * model.config.head_dim
    return {
        "embedding": jnp.array(model.embeddings.token_embeddings.weight.array),
        "layers": {
            "attention_norm": jnp.array(layers.input_layernorm.weight.array),
            "q": stacked(attention.q_proj, heads),
            "k": stacked(attention.k_proj, heads),
            "v": stacked(attention.v_proj, heads),
            "q_norm": jnp.array(attention.q_norm.weight.array),
            "k_norm": jnp.array(attention.k_norm.weight.array),
            "o": stacked(attention.o_proj, width),
            "mlp_norm": jnp.array(layers.post_attention_layernorm.weight.array),
            "gate": stacked(mlp.gate_proj, model.config.intermediate_dim),
            "up": stacked(mlp.up_proj, model.config.intermediate_dim),
            "down": stacked(mlp.down_proj, width),
        },
        "final_norm": jnp.array(model.transformer.norm.weight.array),
        "head": jnp.array(model.lm_head.weight.array.T),
    }


def train(plan: TrainPlan, eos: int, params: Params, batches: Iterable[np.ndarray]) -> tuple[list[float], list[float]]:
    """(loss of each step, when it ended in seconds) of training on batches of token ids [batch, position].

    `params` are used up. `eos` ends a document.
    """
    rule = optimizer(plan)
    step = train_step(plan, eos, rule)
    state = jax.jit(rule.init)(params)
    losses, ended = [], []
    for batch in batches:
        params, state, value = step(params, state, jnp.asarray(batch))
        losses.append(value.item())
        ended.append(time.perf_counter())
    return losses, ended


def train_step(plan: TrainPlan, eos: int, rule: optax.GradientTransformation) -> Step:
    """One compiled step; it reuses the memory of the parameters and of the optimizer's state."""

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Params, state: Any, tokens: jax.Array) -> tuple[Params, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, tokens, plan, eos)
        updates, state = rule.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return step


def loss(params: Params, tokens: jax.Array, plan: TrainPlan, eos: int) -> jax.Array:
    """Mean over next tokens of cross-entropy in nats, plus the z-loss. `tokens` [batch, position]."""
    length = tokens.shape[1]
    after_eos = (tokens == eos).at[:, -1].set(False)
    document = jnp.cumsum(jnp.roll(after_eos, 1, axis=1), axis=1)
    causal = jnp.tril(jnp.ones((length, length), bool))
    mask = causal & (document[:, :, None] == document[:, None, :])
    cosine, sine = rotations(length, plan.head_dim)

    def layer(x: jax.Array, weights: Params) -> tuple[jax.Array, None]:
        x = x + attention(rms_norm(x, weights["attention_norm"]), weights, mask, cosine, sine, plan)
        y = rms_norm(x, weights["mlp_norm"])
        return x + (jax.nn.silu(y @ weights["gate"]) * (y @ weights["up"])) @ weights["down"], None

    x, _ = jax.lax.scan(layer, params["embedding"][tokens], params["layers"])
    logits = rms_norm(x[:, :-1], params["final_norm"]) @ params["head"]
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.mean(normalizer - chosen + plan.optimizer.z_loss_weight * normalizer**2)


def attention(
    x: jax.Array, weights: Params, mask: jax.Array, cosine: jax.Array, sine: jax.Array, plan: TrainPlan
) -> jax.Array:
    """Multi-head attention of x [batch, position, width] under `mask` [batch, query, key]."""
    by_head = (*x.shape[:2], plan.num_heads, plan.head_dim)
    q, k, v = ((x @ weights[name]).reshape(by_head) for name in "qkv")
    q = rotate(rms_norm(q, weights["q_norm"]), cosine, sine)
    k = rotate(rms_norm(k, weights["k_norm"]), cosine, sine)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q / math.sqrt(plan.head_dim), k)
    shares = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(*x.shape[:2], -1) @ weights["o"]


def rms_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON) * weight


def rotate(x: jax.Array, cosine: jax.Array, sine: jax.Array) -> jax.Array:
    """RoPE of x [batch, position, head, head_dim]."""
    first, second = jnp.split(x, 2, axis=-1)
    return x * cosine + jnp.concatenate([-second, first], axis=-1) * sine


def rotations(length: int, head_dim: int) -> tuple[jax.Array, jax.Array]:
    """(cosine, sine) [position, 1, head_dim]. Long wavelengths are stretched by the factor, those between the two
    limits partly."""
    base, factor, low, high, context = ROPE
    frequency = 1.0 / base ** (np.arange(0, head_dim, 2) / head_dim)
    wavelength = 2 * np.pi / frequency
    keep = np.clip((context / wavelength - low) / (high - low), 0, 1)
    scaled = keep * frequency + (1 - keep) * frequency / factor
    angles = np.tile(np.outer(np.arange(length), scaled), 2)[:, None, :]
    return jnp.asarray(np.cos(angles), jnp.float32), jnp.asarray(np.sin(angles), jnp.float32)


def optimizer(plan: TrainPlan) -> optax.GradientTransformation:
    """AdamH and Adam on their groups, gradients clipped by the norm of each group."""
    settings = plan.optimizer
    assert isinstance(settings, AdamHParams)
    clip = optax.clip_by_global_norm(settings.max_grad_norm)
    adam = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)
    groups: dict[Hashable, optax.GradientTransformation] = {
        "adam": optax.chain(clip, adam, optax.scale_by_learning_rate(schedule(plan, settings.adam_lr))),
        "adamh": optax.chain(clip, norm_preserving(adam, schedule(plan, settings.learning_rate))),
    }
    return optax.partition(
        groups,
        lambda params: jax.tree_util.tree_map_with_path(
            lambda path, _: "adam" if path[-1].key in ADAM else "adamh", params
        ),
    )


def norm_preserving(adam: optax.GradientTransformation, rate: optax.Schedule) -> optax.GradientTransformation:
    """AdamH: each matrix moves along Adam's direction by `rate` times its norm and is scaled back to that norm."""

    def update(updates: Params, state: Any, params: Params = None) -> tuple[Params, Any]:
        now = rate(state.count)
        directions, state = adam.update(updates, state, params)

        def moved(weight: jax.Array, direction: jax.Array) -> jax.Array:
            norm = matrix_norm(weight)
            new = weight - now * norm * direction / jnp.maximum(matrix_norm(direction), 1e-10)
            return new * (norm / matrix_norm(new)) - weight

        return jax.tree.map(moved, params, directions), state

    return optax.GradientTransformation(adam.init, update)


def matrix_norm(stack: jax.Array) -> jax.Array:
    """Frobenius norm of a matrix, or of each of a stack [layer, in, out]."""
    return jnp.sqrt(jnp.sum(stack * stack, axis=(-2, -1), keepdims=True))


def schedule(plan: TrainPlan, peak: float) -> optax.Schedule:
    """Linear warmup, constant, linear decay: the fractions of the run in whole steps, rounded down."""
    settings = plan.optimizer
    warmup, decay = int(settings.warmup * plan.steps), int(settings.decay * plan.steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, peak, warmup),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, peak * settings.min_lr_ratio, decay),
        ],
        [warmup, plan.steps - decay],
    )
