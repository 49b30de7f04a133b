"""Mixtures: which tokenized sources a run reads, and in which shares. In which order is `order.py`."""

from collections.abc import Callable, Mapping
from typing import Any

from marin_core.data.mixing.config import UNITS, MixtureConfig, WeightStage, check_weights
from marin_core.data.mixing.order import MixtureOrder, MixtureStage
from marin_core.errors import MarinError
from marin_core.store import Artifact, Store, Workspace


def block_counts(weights: Mapping[str, float], block_size: int) -> dict[str, int]:
    """Sequences of each component in every block of `block_size`, as Levanter's MixtureDataset counts them.

    int(share * block) each, the remainder to the largest.

    Raises:
        MarinError: a weight is not positive, or so small that its component would never be read.
    """
    check_weights(weights)
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
    config: MixtureConfig, tokenized: Mapping[str, Artifact], workspace: Workspace, log: Callable[[str], None]
) -> dict[str, Any]:
    """Write `mixture.json`: per stage the nominal and effective share of every component, per component its size.

    Raises:
        MarinError: a share rounds to nothing, or a component has no training tokens.
    """
    components = {name: _component(tokenized[name]) for name in config.components}
    if empty := [name for name, component in components.items() if not component["train_tokens"]]:
        raise MarinError(f"mixture: {', '.join(empty)} has no training tokens; leave it out")
    stages = [_stage(stage, config, components) for stage in config.stages]
    workspace.write_json("mixture.json", {**config.to_json(), "stages": stages, "components": components})
    for stage in stages:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in stage["effective_shares"].items())
        log(f"mixture/{config.name} from sequence {stage['start']:,}: {shares}")
    return {
        "stages": stages,
        "components": components,
        "block_size": config.block_size,
        "train_tokens": sum(component["train_tokens"] for component in components.values()),
    }


def mixture_order(
    mixture: Mapping[str, Any], *, seq_len: int, seed: int, run_tokens: int | None = None
) -> MixtureOrder:
    """The order of a committed mixture (the content of its `mixture.json`) for sequences of `seq_len` tokens.

    `run_tokens` is the length of the run, needed where the mixture simulates the epochs of a longer one.

    Raises:
        MarinError: a component has no whole sequence, or `run_tokens` is missing or exceeds the simulated target.
    """
    lengths = {name: c["train_tokens"] // seq_len for name, c in mixture["components"].items()}
    share = _simulated_share(mixture, run_tokens)
    return MixtureOrder(
        block_size=mixture["block_size"],
        stages=[MixtureStage(stage["start"], stage["counts"]) for stage in mixture["stages"]],
        lengths=lengths,
        usable={name: int(length * share) for name, length in lengths.items()},
        seed=seed,
        shuffle=mixture["shuffle"],
    )


def component_artifact(store: Store, mixture: Mapping[str, Any], name: str) -> Artifact:
    """The shards of a component, as the mixture was made of them.

    Raises:
        MarinError: they are gone, or were built again with other content since.
    """
    entry = mixture["components"][name]
    artifact = store.committed(entry["artifact"], entry["fingerprint"])
    if artifact.record.content != entry["content"]:
        raise MarinError(
            f"{entry['artifact']} was built again with other content than mixture/{mixture['name']} was made of; "
            f"materialize mixture/{mixture['name']} again"
        )
    return artifact


def _simulated_share(mixture: Mapping[str, Any], run_tokens: int | None) -> float:
    target = mixture["simulated_target_tokens"]
    if target is None:
        return 1.0
    simulates = f"mixture {mixture['name']} simulates a run of {target:.4g} tokens"
    if run_tokens is None:
        raise MarinError(f"{simulates}; say how many tokens this run has")
    if run_tokens > target:
        raise MarinError(f"{simulates}; this one has {run_tokens:,}, make it shorter or raise simulated_target_tokens")
    return run_tokens / target


def _component(artifact: Artifact) -> dict[str, Any]:
    record = artifact.record
    return {
        "artifact": record.name,
        "fingerprint": record.fingerprint,
        # A run reads the shards through its mixture: other shards make another mixture.
        "content": record.content,
        **{f"train_{unit}": record.summary[f"train_{unit}"] for unit in UNITS},
    }


def _stage(stage: WeightStage, config: MixtureConfig, components: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A stage with what its weights come to in tokens: in `unit`, share s of a component whose documents have t tokens
    per unit takes s * t of the sequences."""
    unit = f"train_{config.weighted_by}"
    tokens = {
        name: weight * components[name]["train_tokens"] / components[name][unit]
        for name, weight in sorted(stage.weights.items())
    }
    counts = block_counts(tokens, config.block_size)
    return {
        "start": stage.start,
        "weights": dict(stage.weights),
        "nominal_shares": {name: weight / sum(tokens.values()) for name, weight in tokens.items()},
        "effective_shares": {name: count / config.block_size for name, count in counts.items()},
        "counts": counts,
    }
