"""Mixtures: which tokenized sources a run reads, and in which shares."""

from collections.abc import Callable, Mapping
from typing import Any

from marin_core.errors import MarinError
from marin_core.store import Artifact, Writer


def block_counts(weights: Mapping[str, float], block_size: int) -> dict[str, int]:
    """Sequences of each component in every block of `block_size`, as Levanter's MixtureDataset counts them.

    int(share * block) each, the remainder to the largest.

    Raises:
        MarinError: a weight is not positive, or so small that its component would never be read.
    """
    if bad := [f"{name}={weight}" for name, weight in weights.items() if not weight > 0]:
        raise MarinError(f"mixture weights must be positive: {', '.join(bad)}; leave a component out instead")
    total = sum(weights.values())
    counts = {name: int(weight / total * block_size) for name, weight in weights.items()}
    if dropped := [name for name, count in counts.items() if count == 0]:
        raise MarinError(
            f"mixture: {', '.join(dropped)} would get no sequence in a block of {block_size}; "
            f"raise the weight or the block size"
        )
    counts[max(sorted(counts), key=counts.__getitem__)] += block_size - sum(counts.values())
    return counts


def build_mixture(
    weights: Mapping[str, float],
    block_size: int,
    tokenized: Mapping[str, Artifact],
    writer: Writer,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Write `mixture.json`: nominal and effective share, tokens and documents of every component."""
    counts = block_counts(weights, block_size)
    total = sum(weights.values())
    components = {
        name: {
            "artifact": tokenized[name].record.name,
            "fingerprint": tokenized[name].record.fingerprint,
            # A run reads the shards through its mixture: other shards make another mixture.
            "content": tokenized[name].record.content,
            "nominal_share": weights[name] / total,
            "effective_share": counts[name] / block_size,
            "train_tokens": tokenized[name].record.summary["train_tokens"],
            "train_documents": tokenized[name].record.summary["train_documents"],
        }
        for name in sorted(weights)
    }
    writer.write_json("mixture.json", {"block_size": block_size, "components": components})
    shares = ", ".join(f"{name} {c['effective_share']:.1%}" for name, c in components.items())
    log(f"{writer.spec.name}: {shares}")
    return {
        "components": components,
        "block_size": block_size,
        "train_tokens": sum(c["train_tokens"] for c in components.values()),
    }
