"""Exported folders: what stands in them, and that one which is not the trained model is never committed."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin_core.errors import MarinError
from marin_core.exports.check import exported_logits, levanter_logits, transformers_logits
from marin_core.exports.folder import ExportTokenizer, write_folder
from marin_core.store import Artifact
from marin_core.tasks.exports import probe_tokens
from marin_core.training.model import trained_model
from tests.conftest import REPOSITORY
from tests.exports.lab import BOS, EOS, TURN_END, TURNS, VOCAB, Lab, diverged, lively_model, make_lab, tiny_plan

ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FILES = {"model.safetensors", "config.json", "generation_config.json", "export.json"}
NO_TORCH = importlib.util.find_spec("torch") is None


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make_lab(tmp_path_factory.mktemp("lab"), template=TURNS)


@pytest.fixture(scope="module")
def exported(lab: Lab) -> Artifact:
    """An export that was made without a network."""

    def refuse(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"an export asked {address}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        return lab.export(lab.spec())


def test_the_folder_holds_the_model_and_says_what_was_compared(lab: Lab, exported: Artifact) -> None:
    files = {entry.path for entry in exported.record.files}
    assert files == FILES | {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    written = exported.read_json("export.json")
    check = written["check"]
    assert (check["sequences"], check["positions"]) == (4, 48)
    assert check["max_abs_difference"] <= check["tolerance"] < 1e-3 * check["max_abs_logit"]
    assert check["max_abs_logit"] > 1
    run = lab.store.artifact(lab.run).record
    assert written["checkpoint"]["content"] == run.content
    assert written["checkpoint"]["step"] == 6
    # Embeddings and output layer; each layer's attention, gated MLP, two norms and two norms of heads; the last norm.
    assert written["parameters"] == 2 * VOCAB * 24 + 2 * (4 * 24 * 32 + 3 * 24 * 48 + 2 * 24 + 2 * 16) + 24
    assert exported.record.summary["max_abs_difference"] == check["max_abs_difference"]


def test_the_configuration_is_that_of_the_trained_model(exported: Artifact) -> None:
    config = exported.read_json("config.json")
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["model_type"] == "qwen3"
    # transformers reads the first since 5, the other two before.
    assert config["rope_parameters"] == ROPE | {"rope_theta": 500_000}
    assert config["rope_scaling"] == ROPE
    assert config["rope_theta"] == 500_000
    assert config["dtype"] == config["torch_dtype"] == "float32"
    expected = {
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 48,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": None,
    }
    assert {key: config[key] for key in expected} == expected


def test_generation_stops_where_turns_end_and_suppresses_nothing(exported: Artifact) -> None:
    from transformers import GenerationConfig, Qwen3Config

    read = GenerationConfig.from_pretrained(exported.url)
    assert (read.bos_token_id, read.eos_token_id, read.pad_token_id) == (BOS, [EOS, TURN_END], None)
    # What transformers would derive where generation_config.json is not read.
    derived = GenerationConfig.from_model_config(Qwen3Config.from_pretrained(exported.url))
    for config in (read, derived):
        assert not config.begin_suppress_tokens
        assert config.decoder_start_token_id is None


def test_the_tokenizer_is_that_of_training_byte_for_byte(lab: Lab, exported: Artifact) -> None:
    trained = lab.store.artifact(lab.tokenizer)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert exported.read(name) == trained.read(name)


def test_a_tokenizer_without_chat_template_gets_none(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    lab = make_lab(tmp_path, {"pad_token": "<|eot_id|>"})
    exported = lab.export(lab.spec())
    assert {entry.path for entry in exported.record.files} == FILES | {"tokenizer.json", "tokenizer_config.json"}
    assert AutoTokenizer.from_pretrained(exported.url).chat_template is None
    stops = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": TURN_END}
    assert exported.read_json("generation_config.json") == stops
    assert exported.read_json("config.json")["pad_token_id"] == TURN_END


def test_bfloat16_rounds_the_weights_and_nothing_else(lab: Lab, exported: Artifact) -> None:
    import jax.numpy as jnp
    from safetensors.numpy import load_file

    rounded = lab.export(lab.spec("bfloat16"))
    written = rounded.read_json("export.json")
    assert rounded.read_json("config.json")["dtype"] == "bfloat16"
    assert written["check"]["max_abs_difference"] <= written["check"]["tolerance"]
    assert written["max_abs_rounding_difference"] > 10 * written["check"]["tolerance"]
    whole = load_file(exported.path("model.safetensors"))
    for name, tensor in load_file(rounded.path("model.safetensors")).items():
        assert tensor.dtype == jnp.bfloat16
        assert np.array_equal(tensor, whole[name].astype(jnp.bfloat16))


def test_large_models_lie_in_several_files_with_an_index(lab: Lab, exported: Artifact, tmp_path: Path) -> None:
    plan, tokens = tiny_plan(), probe_tokens(lab.store, lab.run.inputs["mixture"], 48)
    tokenizer = lab.store.artifact(lab.tokenizer)
    with trained_model(plan, checkpoint_of(lab), tokenizer.url, tmp_path) as trained:
        write_folder(trained.model, VOCAB, ExportTokenizer.of(tokenizer), "float32", tmp_path / "model", 40_000)
        expected = levanter_logits(trained.model, trained.trainer, tokens)
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    shards = {path.name for path in (tmp_path / "model").glob("*.safetensors")}
    assert len(shards) > 2
    assert shards == set(index["weight_map"].values())
    assert index["metadata"]["total_size"] == 4 * exported.record.summary["parameters"]
    logits, _ = exported_logits(tmp_path / "model", trained.trainer, tokens)
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()


def test_rows_that_only_fill_up_the_vocabulary_are_left_out(lab: Lab, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    plan, tokenizer = tiny_plan(), ExportTokenizer.of(lab.store.artifact(lab.tokenizer))
    with trained_model(plan, checkpoint_of(lab), lab.store.url(lab.tokenizer), tmp_path):
        padded = lively_model(plan, vocab_size=VOCAB + 6)
        write_folder(padded, VOCAB, tokenizer, "float32", tmp_path / "model")
        with pytest.raises(MarinError, match="has 330 entries in its vocabulary, tokenizer/test has 331"):
            write_folder(lively_model(plan), VOCAB + 1, tokenizer, "float32", tmp_path / "none")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    for name, array in (
        ("model.embed_tokens.weight", padded.embeddings.token_embeddings.weight.array),
        ("lm_head.weight", padded.lm_head.weight.array),
    ):
        assert np.array_equal(tensors[name], np.asarray(array)[:VOCAB])
    assert json.loads((tmp_path / "model" / "config.json").read_text())["vocab_size"] == VOCAB


def changed_tensor(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[pytest.MonkeyPatch], None]:
    """Another library's mistake: a file that holds other weights than it was given."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        from levanter.compat import hf_export

        save = hf_export.save_file
        patch.setattr(
            hf_export,
            "save_file",
            lambda tensors, *args, **kwargs: save({**tensors, name: change(tensors[name])}, *args, **kwargs),
        )

    return patched


def default_rope(patch: pytest.MonkeyPatch) -> None:
    from levanter.layers.rotary import Llama3RotaryEmbeddingsConfig

    patch.setattr(Llama3RotaryEmbeddingsConfig, "to_hf_config", lambda self: (self.theta, None))


def other_vocabulary(patch: pytest.MonkeyPatch) -> None:
    from levanter.models.qwen import Qwen3Config

    written = Qwen3Config.to_hf_config
    patch.setattr(Qwen3Config, "to_hf_config", lambda self, size: written(self, size + 22))


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (changed_tensor("model.layers.0.self_attn.k_norm.weight", lambda w: w * np.float32(1.01)), "logits differ"),
        (changed_tensor("model.layers.1.self_attn.q_proj.weight", lambda w: w[::-1].copy()), "logits differ"),
        (changed_tensor("model.norm.weight", lambda w: w * np.float32(np.nan)), "logits differ"),
        (
            changed_tensor("lm_head.weight", lambda w: w[:, :12].copy()),
            "has parameters 25120, trained was 29080",
        ),
        (default_rope, "config.json has rope DefaultRotary"),
        (other_vocabulary, "config.json has vocab_size 352, trained was 330"),
    ],
    ids=[
        "scaled norm",
        "permuted projection",
        "no number",
        "half of a tensor",
        "rope not scaled",
        "vocabulary rounded",
    ],
)
def test_what_is_not_the_trained_model_is_not_committed(
    lab: Lab, mistake: Callable[[pytest.MonkeyPatch], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    spec = lab.spec(attempt=told)
    with pytest.raises(MarinError, match=told):
        lab.export(spec)
    assert lab.store.record(spec.name, spec.fingerprint) is None


def test_a_tokenizer_that_is_read_as_another_is_not_committed(lab: Lab, tmp_path: Path) -> None:
    # transformers takes the class from the model's type where the tokenizer names none, and another pre-tokenizer.
    other = make_lab(tmp_path, {"tokenizer_class": "GPT2Tokenizer", "bos_token": None})
    with pytest.raises(MarinError, match="the tokenizer has"):
        other.export(other.spec())


def test_what_cannot_be_exported_is_told_before_anything_is_written(lab: Lab) -> None:
    with pytest.raises(MarinError, match="its run diverged and has no checkpoint"):
        failed = diverged(lab)
        failed.export(failed.spec())
    with pytest.raises(MarinError, match="dtype is 'float16'; an export has float32 or bfloat16"):
        lab.export(lab.spec("float16"))


def test_the_sequences_compared_are_the_validation_set_s(lab: Lab) -> None:
    from levanter.store.cache import TreeCache

    tokenized = lab.store.artifact(lab.run.inputs["mixture"].inputs["tokenized/prose"])
    cache: Any = TreeCache.load(tokenized.path("validation"), {"input_ids": np.zeros((0,), np.int32)})
    flat = np.concatenate([row["input_ids"] for row in cache.get_batch_sync(range(len(cache)))])
    for seq_len in (48, 20):
        tokens = probe_tokens(lab.store, lab.run.inputs["mixture"], seq_len)
        assert np.array_equal(tokens, flat[: 4 * seq_len].reshape(4, seq_len))


@pytest.mark.skipif(NO_TORCH, reason="torch is not installed, so transformers has no models; Levanter reads them back")
def test_transformers_computes_levanter_s_logits(lab: Lab, exported: Artifact, tmp_path: Path) -> None:
    tokens = probe_tokens(lab.store, lab.run.inputs["mixture"], 48)
    with trained_model(tiny_plan(), checkpoint_of(lab), lab.store.url(lab.tokenizer), tmp_path) as trained:
        expected = levanter_logits(trained.model, trained.trainer, tokens)
    assert np.abs(transformers_logits(Path(exported.url), tokens) - expected).max() < 1e-5 * np.abs(expected).max()


def test_two_devices_write_what_one_does(lab: Lab, exported: Artifact) -> None:
    script = (
        "import sys, json, pathlib; from tests.exports.lab import *; import jax; assert len(jax.devices()) == 2;"
        "root, run, tokenizer, scratch = sys.argv[1:];"
        "lab = Lab(Store(root), *(ArtifactSpec.from_json(json.loads(x)) for x in (run, tokenizer)), Path(scratch));"
        "lab.export(lab.spec(attempt='two devices'))"
    )
    specs = [json.dumps(spec.to_json()) for spec in (lab.run, lab.tokenizer)]
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", script, lab.store.root, *specs, str(lab.scratch)]
    done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    on_two = lab.store.artifact(lab.spec(attempt="two devices"))
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        assert on_two.read(name) == exported.read(name)


def checkpoint_of(lab: Lab) -> str:
    return lab.store.artifact(lab.run).path("checkpoints", "step-6")
