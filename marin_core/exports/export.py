"""A checkpoint to a checked Hugging Face folder.

What it takes, for a model whose parameters are P bytes in float32 and E bytes in the export's dtype:

- on the devices together P, and where the dtype is another E once more;
- of the host's memory P, since Levanter reads a checkpoint there and the model is written from there, and with torch
  installed it is read back there, after the first is let go; two files' weights; twice the logits that are compared;
- E of scratch space.

For 25e9 parameters in float32, P and E are 100 GB, two files 10 GB, the logits of four sequences of 512 tokens 1 GB.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.errors import MarinError
from marin_core.exports.check import (
    LogitsCheck,
    exported_logits,
    levanter_logits,
    library_versions,
    require_complete,
    require_same_configuration,
    require_same_tokenizer,
)
from marin_core.exports.folder import ARCHITECTURE, DTYPES, ExportTokenizer, write_folder
from marin_core.recipes import TrainPlan
from marin_core.training.model import model_config, trained_model

if TYPE_CHECKING:
    from levanter.trainer import TrainerConfig


@dataclass(frozen=True)
class Exported:
    """What was written and how it compares. `rounding` is the largest change of a logit, in nats, that comes from
    rounding the weights to `dtype`: 0 for float32. `parameters` counts what is in the files."""

    dtype: str
    parameters: int
    check: LogitsCheck
    rounding: float

    def to_json(self) -> dict[str, Any]:
        return {
            "architecture": ARCHITECTURE,
            "dtype": self.dtype,
            "parameters": self.parameters,
            "check": dataclasses.asdict(self.check),
            "max_abs_rounding_difference": self.rounding,
            "libraries": library_versions(),
        }


def export_folder(
    name: str,
    plan: TrainPlan,
    checkpoint: str,
    tokenizer_url: str,
    tokenizer: ExportTokenizer,
    dtype: str,
    tokens: np.ndarray,
    folder: Path,
) -> Exported:
    """Write the checkpoint at the URL `checkpoint` to `folder` and compare it with what was trained on the sequences
    `tokens` (sequences, positions). `name` is the export's, for messages.

    Raises:
        MarinError: the dtype is unknown, or the folder read back is not the model that was trained.
    """
    if dtype not in DTYPES:
        raise MarinError(f"{name}: dtype is {dtype!r}; an export has {' or '.join(DTYPES)}")
    trained, logits, rounding, trainer = _write(plan, checkpoint, tokenizer_url, tokenizer, dtype, tokens, folder)
    require_complete(name, folder, trained)
    require_same_configuration(name, folder, model_config(plan, tokenizer_url), plan.vocab_size)
    require_same_tokenizer(name, folder, tokenizer.parsed, tokens)
    found, library = exported_logits(folder, trainer, tokens)
    check = LogitsCheck.of(library, logits, found)
    check.require_equal(name)
    return Exported(dtype, trained, check, rounding)


def _write(
    plan: TrainPlan,
    checkpoint: str,
    tokenizer_url: str,
    tokenizer: ExportTokenizer,
    dtype: str,
    tokens: np.ndarray,
    folder: Path,
) -> tuple[int, np.ndarray, float, "TrainerConfig"]:
    """How many parameters the folder must hold, and the logits that it must give: those of the trained weights as
    rounded to the dtype. And how far these are from the logits of the weights as trained."""
    with trained_model(plan, checkpoint, tokenizer_url, folder.parent) as trained:
        count = write_folder(trained.model, plan.vocab_size, tokenizer, dtype, folder)
        logits = levanter_logits(trained.model, trained.trainer, tokens)[..., : plan.vocab_size]
        if dtype == "float32":
            return count, logits, 0.0, trained.trainer
        rounded = levanter_logits(_rounded(trained.model, dtype), trained.trainer, tokens)[..., : plan.vocab_size]
        return count, rounded, float(np.abs(rounded - logits).max()), trained.trainer


def _rounded(model: Any, dtype: str) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, model)
