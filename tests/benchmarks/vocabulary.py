"""The Llama-3 vocabulary as a `tokenizer.json`, from the rank file that the wheel `llama-models` holds.

    python vocabulary.py OUT

Runs in the peers' environment. The wheel's licence does not allow to pass the vocabulary on: it stays in the cache.
"""

import base64
import importlib.util
import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
NAMED_SPECIALS = (
    *(BOS, EOS, "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>"),
    *("<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    "<|image|>",
)
SPECIALS = 256


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every split of every token into two tokens: by the token's rank, then by those of the halves."""
    ordered = []
    for token, rank in ranks.items():
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        ordered += [(rank, ranks[a], ranks[b], a, b) for a, b in halves if a in ranks and b in ranks]
    return [(a, b) for *_, a, b in sorted(ordered)]


def llama3(ranks: dict[bytes, int]) -> Tokenizer:
    letters = byte_letters()

    def written(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    vocabulary = {written(token): rank for token, rank in ranks.items()}
    pairs = [(written(a), written(b)) for a, b in merges(ranks)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=True))
    words = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False)
    letters_of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, letters_of_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    reserved = [f"<|reserved_special_token_{number + 2}|>" for number in range(SPECIALS - len(NAMED_SPECIALS))]
    specials = [*NAMED_SPECIALS, *reserved]
    tokenizer.add_special_tokens([AddedToken(special, special=True, normalized=False) for special in specials])
    begin = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
    return tokenizer


def main() -> None:
    out = Path(sys.argv[1])
    package = importlib.util.find_spec("llama_models")
    if package is None or not package.submodule_search_locations:
        sys.exit("the wheel llama-models is not installed in this environment; delete the cache folder and start again")
    tokenizer = llama3(read_ranks(Path(package.submodule_search_locations[0]) / "llama3" / "tokenizer.model"))
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS}
    config |= {"clean_up_tokenization_spaces": False, "model_max_length": 10**9}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
