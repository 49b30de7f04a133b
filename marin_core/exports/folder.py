"""A trained model as the files that transformers and what is built on it load: weights, configuration, tokenizer.

Levanter converts the weights and the configuration. What it would derive from a reference model on a hub, or write anew
with the installed transformers, is said here instead: `architectures`, the dtype, the control tokens, and the
tokenizer's files, which are those of training byte for byte.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.data.tokens.tokenizer import CONFIG, TEMPLATE, TOKENIZER, TokenizerFiles, read_tokenizer
from marin_core.errors import MarinError
from marin_core.exports.generation import generation_config
from marin_core.store import Artifact

if TYPE_CHECKING:
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from levanter.models.lm_model import LmHeadModel

DTYPES = ("float32", "bfloat16")
ARCHITECTURE = "Qwen3ForCausalLM"
# Bytes of weights in a file: Levanter's own default, and what transformers writes.
SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class ExportTokenizer:
    """A tokenizer artifact as an export needs it: `files` by name, `pad` the id of its padding token, if it names one,
    and `generation`, what `generation_config.json` says."""

    name: str
    parsed: TokenizerFiles
    files: dict[str, bytes]
    pad: int | None
    generation: dict[str, Any]

    @classmethod
    def of(cls, artifact: Artifact) -> "ExportTokenizer":
        """Raises MarinError if the files are missing or damaged, or its chat template does not render."""
        name, parsed = artifact.record.name, read_tokenizer(artifact)
        present = {entry.path for entry in artifact.record.files}
        files = {file: artifact.read(file) for file in (TOKENIZER, CONFIG, TEMPLATE) if file in present}
        pad = _pad_id(json.loads(files[CONFIG]), parsed)
        return cls(name, parsed, files, pad, generation_config(name, parsed, pad))


def write_folder(
    model: "LmHeadModel[Any]",
    vocab_size: int,
    tokenizer: ExportTokenizer,
    dtype: str,
    folder: Path,
    shard_bytes: int = SHARD_BYTES,
) -> int:
    """Write `model` (its parameters on devices of this process) with weights in `dtype`. Returns how many parameters
    the files must hold.

    Files: `model.safetensors`, or `model-…-of-….safetensors` of at most `shard_bytes` with
    `model.safetensors.index.json`; `config.json`, `generation_config.json` and the tokenizer's.

    Rows of the embeddings beyond `vocab_size`, with which training may have filled them up to divide among devices, are
    left out.

    Raises:
        MarinError: the model has fewer than `vocab_size` entries.
    """
    import jax
    import jax.numpy as jnp

    if model.Vocab.size < vocab_size:
        raise MarinError(
            f"the checkpoint has {model.Vocab.size} entries in its vocabulary, {tokenizer.name} has {vocab_size}; "
            f"train it with this tokenizer"
        )
    if model.Vocab.size > vocab_size:
        model = model.resize_vocab(vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    with _on_host(model) as whole:
        # Levanter declares another base class than its models have.
        exported: Any = whole
        _converter(model.config, tokenizer, dtype).save_pretrained(
            exported,
            str(folder),
            save_tokenizer=False,
            max_shard_size=shard_bytes,
            max_concurrent_shards=1,
            dtype=jnp.dtype(dtype),
            generation_config=tokenizer.generation,
        )
    for name, data in tokenizer.files.items():
        (folder / name).write_bytes(data)
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def written_parameters(folder: Path) -> int:
    """How many the files of a folder hold, read from their headers."""
    from safetensors import safe_open

    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            count += sum(int(np.prod(file.get_slice(name).get_shape())) for name in names)
    return count


@contextlib.contextmanager
def _on_host(model: "LmHeadModel[Any]") -> Iterator["LmHeadModel[Any]"]:
    """The model in the host's memory, on a mesh of its own. Of a model that several devices share, Levanter would write
    what the first of them has: it asks JAX to bring the parts together in a way that does nothing on a mesh whose axes
    are `Auto`, as Levanter's are."""
    import jax
    from haliax.partitioning import ResourceAxis, set_mesh

    host = jax.local_devices(backend="cpu")[0]
    with set_mesh(jax.sharding.Mesh(np.array([host]), (ResourceAxis.DATA,))):
        yield jax.device_put(model, host)


def _converter(config: Any, tokenizer: ExportTokenizer, dtype: str) -> "HFCheckpointConverter":
    """Levanter's converter without a reference model: nothing is asked of a hub. And without a tokenizer: with one, it
    suppresses BOS and EOS as the first token that a model writes, and gives a decoder that begins with BOS."""
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from transformers import Qwen3Config as HfConfig

    return HFCheckpointConverter(
        type(config),
        HfConfigClass=HfConfig,
        config_overrides={
            "architectures": [ARCHITECTURE],
            # The first is read by transformers since 5, the second by those before.
            "dtype": dtype,
            "torch_dtype": dtype,
            "bos_token_id": tokenizer.parsed.bos_id,
            "eos_token_id": tokenizer.parsed.eos_id,
            "pad_token_id": tokenizer.pad,
        },
    )


def _pad_id(config: dict[str, Any], tokenizer: TokenizerFiles) -> int | None:
    named = config.get("pad_token")
    content = named["content"] if isinstance(named, dict) else named
    ids = {token["content"]: token["id"] for token in tokenizer.parsed["added_tokens"]}
    return ids.get(content)
