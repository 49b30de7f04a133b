"""The laptop's tokenizer: a byte-level BPE trained on a fixed sample of the curated text."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from marin_core.data.curate import read_documents
from marin_core.errors import MarinError
from marin_core.store import Artifact, Writer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"


def train_tokenizer(
    curated: Mapping[str, Artifact],
    vocab_size: int,
    sample_bytes: int,
    writer: Writer,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Write `tokenizer.json` and `tokenizer_config.json` in the form that transformers and Levanter load.

    The sample is the first `sample_bytes` of UTF-8 of each source in order of document id, which is a random order
    that is the same everywhere.

    Raises:
        MarinError: the sample is too small for the vocabulary.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    log(f"tokenizer: training a byte-level BPE with {vocab_size:,} entries")
    texts = [text for source in sorted(curated) for text in _sample(curated[source], sample_bytes)]
    tokenizer.train_from_iterator(texts, trainer)
    entries = tokenizer.get_vocab_size()
    if entries != vocab_size:
        remedy = "raise sample_bytes or lower" if entries < vocab_size else "raise"
        raise MarinError(
            f"tokenizer: the sample gives {entries} entries, not {vocab_size}; {remedy} vocab_size in the profile"
        )
    with writer.open("tokenizer.json") as file:
        file.write(tokenizer.to_str().encode())
    writer.write_json(
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": EOS,
            "model_max_length": 10**9,
        },
    )
    return {"vocab_size": vocab_size, "sample_documents": len(texts), "bos_token": BOS, "eos_token": EOS}


def load_tokenizer(artifact: Artifact) -> "Tokenizer":
    """The tokenizer of an artifact, set so that text which spells a special token gets ordinary ids."""
    from tokenizers import Tokenizer

    with artifact.open("tokenizer.json") as file:
        tokenizer = Tokenizer.from_str(file.read().decode())
    tokenizer.encode_special_tokens = True
    return tokenizer


def special_ids(artifact: Artifact, tokenizer: "Tokenizer") -> tuple[int, int]:
    """(BOS, EOS) ids."""
    with artifact.open("tokenizer_config.json") as file:
        config = json.load(file)
    return tokenizer.token_to_id(config["bos_token"]), tokenizer.token_to_id(config["eos_token"])


def _sample(curated: Artifact, sample_bytes: int) -> Iterator[str]:
    taken = 0
    for text in read_documents(curated)["text"]:
        taken += len(text.encode())
        if taken > sample_bytes:
            return
        yield text
