"""The reference tokenizer of an artifact, for tests that say what ids a text must get."""

from tokenizers import Tokenizer

from marin_core.store import Artifact


def load_tokenizer(artifact: Artifact) -> Tokenizer:
    """Set so that text which spells a special token gets ordinary ids."""
    tokenizer = Tokenizer.from_str(artifact.read("tokenizer.json").decode())
    tokenizer.encode_special_tokens = True
    return tokenizer


def special_ids(artifact: Artifact, tokenizer: Tokenizer) -> tuple[int, int]:
    """(BOS, EOS) ids."""
    config = artifact.read_json("tokenizer_config.json")
    return tokenizer.token_to_id(config["bos_token"]), tokenizer.token_to_id(config["eos_token"])
