"""Tokenizers as artifacts: `tokenizer.json` and `tokenizer_config.json`, trained on a sample or fetched.

What text becomes under a tokenizer is in `encoder.py`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from marin_core.data.documents import read_documents
from marin_core.errors import MarinError
from marin_core.store import Artifact, Workspace

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
TOKENIZER, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
MODEL_MAX_LENGTH = 10**9


@dataclass(frozen=True)
class TokenizerFiles:
    """What a tokenizer is: its `tokenizer.json`, also parsed, and what `tokenizer_config.json` names.

    `special` maps each special token to its id; `bos` is None where the vocabulary has none.
    """

    tokenizer_json: str = field(repr=False, compare=False)
    parsed: Mapping[str, Any] = field(repr=False, compare=False)
    sha256: str
    vocab_size: int
    special: Mapping[str, int]
    bos: str | None
    eos: str
    chat_template: str | None

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def bos_id(self) -> int | None:
        return None if self.bos is None else self.special[self.bos]

    @property
    def eos_id(self) -> int:
        return self.special[self.eos]

    def identity(self, framing: str, *, conversations: bool = False) -> dict[str, Any]:
        """What must be equal for token ids to mean the same; for conversations the template is part of it."""
        template = {"chat_template": _sha256(self.chat_template or "")} if conversations else {}
        return {
            **template,
            "sha256": self.sha256,
            "vocab_size": self.vocab_size,
            "special_tokens": dict(self.special),
            "bos": self.bos_id,
            "eos": self.eos_id,
            "framing": framing,
        }


def train_tokenizer(
    curated: Mapping[str, Artifact],
    vocab_size: int,
    sample_bytes: int,
    workspace: Workspace,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Write the files of a byte-level BPE in the form that transformers and Levanter load.

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
    sampled = 0

    def sample() -> Iterator[str]:
        nonlocal sampled
        for source in sorted(curated):
            for text in _first_bytes(curated[source], sample_bytes):
                sampled += 1
                yield text

    tokenizer.train_from_iterator(sample(), trainer)
    entries = tokenizer.get_vocab_size()
    if entries != vocab_size:
        remedy = "raise sample_bytes or lower" if entries < vocab_size else "raise"
        raise MarinError(
            f"tokenizer: the sample gives {entries} entries, not {vocab_size}; {remedy} vocab_size in the profile"
        )
    with workspace.open(TOKENIZER) as file:
        file.write(tokenizer.to_str().encode())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS}
    workspace.write_json(CONFIG, {**config, "model_max_length": MODEL_MAX_LENGTH})
    return {"vocab_size": vocab_size, "sample_documents": sampled, "bos_token": BOS, "eos_token": EOS}


def fetch_tokenizer(
    *,
    vocab_size: int,
    workspace: Workspace,
    log: Callable[[str], None],
    repository: str | None = None,
    revision: str | None = None,
    folder: str | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
) -> dict[str, Any]:
    """Write the files of a published tokenizer as they are: of a Hugging Face repository at a revision, or of a folder.
    Their hashes and the commit that the revision resolved to are in the summary.

    Raises:
        MarinError: a file is missing, the repository cannot be reached, or the tokenizer is not as declared (BOS and
            EOS only where they are).
    """
    location = folder or repository or ""
    found, commit = (Path(folder).expanduser(), None) if folder else _download(location, revision)
    texts = {name: _text(found / name) for name in (TOKENIZER, CONFIG, TEMPLATE)}
    if missing := [name for name in (TOKENIZER, CONFIG) if texts[name] is None]:
        raise MarinError(
            f"tokenizer {location} has no {missing[0]}; name a repository or a folder that has {TOKENIZER} and {CONFIG}"
        )
    parsed = parse_tokenizer(f"tokenizer {location}", texts[TOKENIZER] or "", texts[CONFIG] or "", texts[TEMPLATE])
    declared = {"vocab_size": vocab_size, "bos_token": bos_token, "eos_token": eos_token}
    actual = {"vocab_size": parsed.vocab_size, "bos_token": parsed.bos, "eos_token": parsed.eos}
    for key, value in declared.items():
        if value is not None and value != actual[key]:
            raise MarinError(
                f"tokenizer {location}: {key} is {actual[key]!r}, the profile declares {value!r}; correct the profile "
                f"or name another tokenizer"
            )
    kept = {name: text for name, text in texts.items() if text is not None}
    for name, text in kept.items():
        with workspace.open(name) as file:
            file.write(text.encode())
    log(f"tokenizer: {location}{f' at {commit}' if commit else ''}, {parsed.vocab_size:,} entries")
    hashes = {name: _sha256(text) for name, text in kept.items()}
    return {**actual, "location": location, "revision": commit, "sha256": hashes}


def read_tokenizer(artifact: Artifact) -> TokenizerFiles:
    """Raises MarinError if the files are missing, damaged, or do not say which token ends a document."""
    paths = {entry.path for entry in artifact.record.files}
    template = artifact.read(TEMPLATE).decode() if TEMPLATE in paths else None
    tokenizer_json, config = artifact.read(TOKENIZER).decode(), artifact.read(CONFIG).decode()
    return parse_tokenizer(artifact.record.name, tokenizer_json, config, template)


@lru_cache(maxsize=1)
def parse_tokenizer(name: str, tokenizer_json: str, config_json: str, template: str | None = None) -> TokenizerFiles:
    """Raises MarinError, naming the tokenizer by `name`, if there is no EOS token or BOS and EOS are not special."""
    config, data = json.loads(config_json), json.loads(tokenizer_json)
    special = {token["content"]: token["id"] for token in data["added_tokens"] if token["special"]}
    vocab = data["model"]["vocab"]
    entries = {piece for piece, _ in vocab} if isinstance(vocab, list) else set(vocab)
    bos, eos = _token(config.get("bos_token")), _token(config.get("eos_token"))
    for role, token in (("bos_token", bos), ("eos_token", eos)):
        if token not in special and (token is not None or role == "eos_token"):
            raise MarinError(
                f"{name}: {CONFIG} has {role} {token!r}, which is not a special token of {TOKENIZER}; "
                f"name one of {', '.join(list(special)[:4]) or 'its added tokens'}"
            )
    assert eos is not None
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        parsed=data,
        sha256=_sha256(tokenizer_json),
        vocab_size=len(entries | {token["content"] for token in data["added_tokens"]}),
        special=special,
        bos=bos,
        eos=eos,
        chat_template=template or config.get("chat_template"),
    )


def _download(repository: str, revision: str | None) -> tuple[Path, str]:
    """A folder with the files, and the commit they are of."""
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(repository, revision=revision, allow_patterns=[TOKENIZER, CONFIG, TEMPLATE])
    except Exception as error:  # the hub's, the network's, and the file system's
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise MarinError(
            f"tokenizer {repository} at revision {revision or 'main'} cannot be had: {cause}; check the name, the "
            f"revision and the network, or set folder to a local copy"
        ) from None
    return Path(found), Path(found).name


def _text(path: Path) -> str | None:
    return path.read_bytes().decode() if path.is_file() else None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _token(value: Any) -> str | None:
    """Token of a config, which may be spelled out as an object."""
    return value["content"] if isinstance(value, dict) else value


def _first_bytes(curated: Artifact, sample_bytes: int) -> Iterator[str]:
    taken = 0
    for frame in read_documents(curated, ["text"]):
        for text in frame["text"]:
            taken += len(text.encode())
            if taken > sample_bytes:
                return
            yield text
