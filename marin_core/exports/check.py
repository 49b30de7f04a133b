"""Whether an exported folder is the model that was trained: read back as its users do, and compared.

The configuration and the tokenizer must be equal, the logits of real token sequences equal within `TOLERANCE`: computed
with transformers where torch is installed, else with Levanter. Everything is computed in float32.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.data.tokens.tokenizer import TokenizerFiles
from marin_core.errors import MarinError
from marin_core.exports.folder import written_parameters

if TYPE_CHECKING:
    from levanter.models.lm_model import LmHeadModel
    from levanter.models.qwen import Qwen3Config
    from levanter.trainer import TrainerConfig

# Largest difference of a logit, as a share of the largest logit. Measured: the two libraries, which add up the same
# numbers in other orders, differ by 4e-7 to 4e-6 of it (up to 40 layers, 2048 positions); a weight that is off by a
# hundredth, an epsilon or a rotation that is not as trained, by 4e-4 and more.
TOLERANCE = 1e-4
# What decides a forward pass, of Levanter's configuration of the model.
_ARCHITECTURE = (
    "max_seq_len",
    "hidden_dim",
    "intermediate_dim",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "rope",
    "layer_norm_epsilon",
    "activation_function",
    "use_bias",
    "tie_word_embeddings",
    "use_sliding_window",
)


@dataclass(frozen=True)
class LogitsCheck:
    """How far the logits of an exported folder are from the trained model's, in nats, over `sequences` of `positions`
    tokens, as computed with `library`."""

    library: str
    sequences: int
    positions: int
    max_abs_logit: float
    max_abs_difference: float
    tolerance: float

    @classmethod
    def of(cls, library: str, trained: np.ndarray, exported: np.ndarray) -> "LogitsCheck":
        """Logits are (sequences, positions, vocabulary)."""
        largest = float(np.abs(trained).max())
        return cls(
            library=library,
            sequences=trained.shape[0],
            positions=trained.shape[1],
            max_abs_logit=largest,
            max_abs_difference=_largest_difference(trained, exported),
            tolerance=TOLERANCE * largest,
        )

    def require_equal(self, name: str) -> None:
        """Raises MarinError if the difference is larger than the tolerance, or no number."""
        if not self.max_abs_difference <= self.tolerance:
            raise MarinError(
                f"{name}: read back with {self.library}, logits differ from the trained model's by "
                f"{self.max_abs_difference:.3g}, more than {self.tolerance:.3g}; nothing was committed, the installed "
                f"versions of levanter and transformers do not agree on this model"
            )


def levanter_logits(model: "LmHeadModel[Any]", trainer: "TrainerConfig", tokens: np.ndarray) -> np.ndarray:
    """Logits (sequences, positions, vocabulary) float32 of `tokens` (sequences, positions), each attending to what is
    before it. Parameters of a lower precision are read as float32. Call it with the trainer's mesh set."""
    import haliax as hax
    import jax
    import jax.numpy as jnp
    from levanter.layers.attention import AttentionMask

    devices = len(jax.devices())
    rows = -(-len(tokens) // devices) * devices
    Batch, Pos = hax.Axis(trainer.batch_axis_name or "batch", rows), model.Pos.resize(tokens.shape[1])
    batch = hax.named(np.resize(tokens, (rows, tokens.shape[1])), (Batch, Pos))

    @hax.named_jit(axis_resources=trainer.compute_axis_mapping)
    def forward(model: Any, batch: Any) -> Any:
        model = jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, model)
        return model(batch, attn_mask=AttentionMask.causal()).rearrange((Batch, Pos, model.Vocab))

    with jax.default_matmul_precision("highest"):
        return np.asarray(forward(model, batch).array)[: len(tokens)]


def exported_logits(folder: Path, trainer: "TrainerConfig", tokens: np.ndarray) -> tuple[np.ndarray, str]:
    """Logits of an exported folder, and which library computed them."""
    if importlib.util.find_spec("torch") is not None:
        return transformers_logits(folder, tokens), "transformers"
    from levanter.models.lm_model import LmHeadModel

    with trainer.use_device_mesh():
        model: Any = _folder_converter(folder).load_pretrained(LmHeadModel, axis_mapping=trainer.parameter_axis_mapping)
        return levanter_logits(model, trainer, tokens), "levanter"


def transformers_logits(folder: Path, tokens: np.ndarray) -> np.ndarray:
    """Logits (sequences, positions, vocabulary) float32 as transformers computes them, one sequence at a time."""
    import torch  # pyright: ignore[reportMissingImports]  # optional
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    with torch.inference_mode():
        rows = [model(torch.from_numpy(row[None].astype(np.int64))).logits.numpy() for row in tokens]
    return np.concatenate(rows)


def require_complete(name: str, folder: Path, parameters: int) -> None:
    """Raises MarinError unless the files of the folder hold so many parameters."""
    _require_equal(name, "the export", {"parameters": written_parameters(folder)}, {"parameters": parameters})


def require_same_configuration(name: str, folder: Path, trained: "Qwen3Config", vocab_size: int) -> None:
    """Raises MarinError unless transformers reads the architecture that was trained from `config.json`."""
    converter = _folder_converter(folder)
    written = converter.hf_config_from_hf_checkpoint()
    read = converter.config_from_hf_config(written)
    found = {field: getattr(read, field) for field in _ARCHITECTURE} | {"vocab_size": written.vocab_size}
    wanted = {field: getattr(trained, field) for field in _ARCHITECTURE} | {"vocab_size": vocab_size}
    wanted["head_dim"] = trained.actual_head_size
    _require_equal(name, "config.json", found, wanted)


def require_same_tokenizer(name: str, folder: Path, tokenizer: TokenizerFiles, tokens: np.ndarray) -> None:
    """Raises MarinError unless transformers reads a tokenizer from the folder that gives the ids, control tokens and
    chat template of training; the ids of the text of `tokens` (sequences, positions)."""
    from transformers import AutoTokenizer

    from marin_core.data.tokens.encoder import reference_tokenizer

    reference = reference_tokenizer(tokenizer, special=True)
    texts = [reference.decode(row.tolist(), skip_special_tokens=False) for row in tokens]
    read: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    found = {
        "entries": len(read),
        "bos_token_id": read.bos_token_id,
        "eos_token_id": read.eos_token_id,
        "chat_template": read.chat_template,
        "ids": [read(text, add_special_tokens=False)["input_ids"] for text in texts],
    }
    wanted = {
        "entries": tokenizer.vocab_size,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "chat_template": tokenizer.chat_template,
        "ids": [reference.encode(text, add_special_tokens=False).ids for text in texts],
    }
    _require_equal(name, "the tokenizer", found, wanted)


def library_versions() -> dict[str, str]:
    """Versions of the libraries that write and read an export; torch only where it is installed."""
    names = ("marin-levanter", "transformers", "torch")
    return {name: importlib.metadata.version(name) for name in names if _installed(name)}


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _folder_converter(folder: Path) -> Any:
    """Levanter's converter as whoever loads the folder would make it."""
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from levanter.models.qwen import Qwen3Config
    from transformers import Qwen3Config as HfConfig

    return HFCheckpointConverter(Qwen3Config, str(folder), HfConfigClass=HfConfig, tokenizer=str(folder))


def _largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest absolute difference, a sequence at a time: logits are large."""
    if a.shape != b.shape:
        raise MarinError(f"logits of {a.shape} and of {b.shape} (sequences, positions, vocabulary) do not compare")
    return float(np.max([np.abs(x - y).max() for x, y in zip(a, b, strict=True)]))


def _require_equal(name: str, what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key, value in wanted.items():
        if found[key] != value:
            raise MarinError(
                f"{name}: read back, {what} has {key} {_short(found[key])}, trained was {_short(value)}; nothing was "
                f"committed, the installed versions of levanter and transformers do not agree on this model"
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
