"""What a model's shape says of it: its parameters, and the FLOPs of training it on a token. Pure arithmetic.

A Qwen3: gated MLP, as many KV heads as heads, QK-norm, untied embeddings.
"""


def params_without_qk_norm(*, hidden_dim: int, num_layers: int, mlp_dim: int, vocab_size: int) -> int:
    """Parameters as Levanter counts them."""
    per_layer = 4 * hidden_dim**2 + 3 * hidden_dim * mlp_dim + 2 * hidden_dim
    return 2 * vocab_size * hidden_dim + num_layers * per_layer + hidden_dim


def qk_norm_params(*, num_layers: int, head_dim: int) -> int:
    """The two weights of each layer that the published model cards count as well."""
    return num_layers * 2 * head_dim


def training_flops_per_token(
    *, hidden_dim: int, num_layers: int, num_heads: int, mlp_dim: int, seq_len: int, vocab_size: int
) -> int:
    """Three times the forward pass, with full-length attention and the LM head.

    Not 6N: the LM head and the attention scores count, the embedding look-up does not. Agrees with
    `levanter.utils.flop_utils.lm_flops_per_token`.
    """
    per_layer = 6 * hidden_dim * mlp_dim + 8 * hidden_dim**2
    per_layer += 4 * seq_len * hidden_dim + 3 * seq_len * num_heads
    return 3 * (num_layers * per_layer + 2 * hidden_dim * vocab_size)
