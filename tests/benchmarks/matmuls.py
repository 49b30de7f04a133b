"""How fast this machine multiplies float32 matrices in JAX: at its best, and in the shapes of a model's step."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from marin_core.recipes import TrainPlan

SQUARES = (512, 1024, 2048)
# A measurement multiplies so often that it has at least as many FLOPs, but at most so many matrices.
FLOPS_AT_ONCE, MATRICES_AT_ONCE = 5e8, 64
REPETITIONS = 5


@dataclass(frozen=True)
class Matmul:
    """`count` products of [batch, m, k] and [batch, k, n]; a plain matrix has batch 1."""

    m: int
    k: int
    n: int
    count: int = 1
    batch: int = 1

    @property
    def flops(self) -> int:
        """Of one of them."""
        return 2 * self.batch * self.m * self.k * self.n

    @property
    def backward(self) -> tuple["Matmul", "Matmul"]:
        """The gradients with respect to both operands."""
        m, k, n = self.m, self.k, self.n
        return Matmul(m, n, k, self.count, self.batch), Matmul(k, m, n, self.count, self.batch)


def ceiling() -> tuple[float, int]:
    """(FLOP/s of the best of a few large square products, its size)."""
    return max((size_flops(size), size) for size in SQUARES)


def size_flops(size: int) -> float:
    square = Matmul(size, size, size)
    return square.flops / seconds(square)


def step_ceiling(plan: TrainPlan) -> float:
    """FLOP/s of the matrix products of one training step alone, one shape after another."""
    products = step_products(plan)
    return sum(p.count * p.flops for p in products) / sum(p.count * seconds(p) for p in products)


def step_products(plan: TrainPlan) -> list[Matmul]:
    """Every product of a step, forward and backward; the same shapes together."""
    tokens, width, layers = plan.batch_size * plan.seq_len, plan.hidden_dim, plan.num_layers
    heads, length = plan.batch_size * plan.num_heads, plan.seq_len
    forward = [
        Matmul(tokens, width, plan.num_heads * plan.head_dim, 3 * layers),
        Matmul(tokens, plan.num_heads * plan.head_dim, width, layers),
        Matmul(tokens, width, plan.mlp_dim, 2 * layers),
        Matmul(tokens, plan.mlp_dim, width, layers),
        Matmul(length, plan.head_dim, length, layers, heads),
        Matmul(length, length, plan.head_dim, layers, heads),
        Matmul(tokens, width, plan.vocab_size),
    ]
    return merged(one for product in forward for one in (product, *product.backward))


def merged(products: Iterable[Matmul]) -> list[Matmul]:
    counts: dict[tuple[int, int, int, int], int] = {}
    for p in products:
        shape = (p.m, p.k, p.n, p.batch)
        counts[shape] = counts.get(shape, 0) + p.count
    return [Matmul(m, k, n, count, batch) for (m, k, n, batch), count in counts.items()]


def seconds(product: Matmul) -> float:
    """Of one product: the best of several measurements of many, each with operands of its own."""
    number = max(1, min(MATRICES_AT_ONCE, round(FLOPS_AT_ONCE / product.flops)))
    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    shapes = ((number, product.batch, product.m, product.k), (number, product.batch, product.k, product.n))
    left, right = (
        [jnp.squeeze(one, 0) if product.batch == 1 else one for one in jax.random.normal(key, shape)]
        for key, shape in zip(keys, shapes, strict=True)
    )
    multiply = jax.jit(lambda left, right: [a @ b for a, b in zip(left, right, strict=True)])
    jax.block_until_ready(multiply(left, right))
    return min(timed(multiply, left, right) for _ in range(REPETITIONS)) / number


def timed(multiply: "jax.stages.Wrapped", left: list[jax.Array], right: list[jax.Array]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(multiply(left, right))
    return time.perf_counter() - began
