"""A run whose model was never trained, with the tokenizer and the validation set that an export reads."""

import dataclasses
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core.build import Build, BuildOptions
from marin_core.data.mixing.config import MixtureConfig
from marin_core.data.mixing.mixture import build_mixture
from marin_core.data.sources.declaration import FolderOrigin, Layout, Source
from marin_core.data.stages import run_stage
from marin_core.data.tokens.shards import tokenize_stage
from marin_core.recipes import RECIPES, TrainPlan
from marin_core.store import Artifact, ArtifactSpec, Store
from marin_core.tasks.exports import export_checkpoint
from marin_core.training.model import model_config
from tests.data.parts import commit_documents

VOCAB = 330
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
BOS, EOS, TURN_END = 0, 1, 4
TURNS = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
CURATED = ArtifactSpec("curated/prose", "curate", "1")


@dataclass(frozen=True)
class Lab:
    """`run` is the training artifact; `tokenizer` is its tokenizer's."""

    store: Store
    run: ArtifactSpec
    tokenizer: ArtifactSpec
    scratch: Path

    def spec(self, dtype: str = "float32", attempt: str = "1") -> ArtifactSpec:
        inputs = {"checkpoint": self.run, "tokenizer": self.tokenizer}
        return ArtifactSpec("exports/delphi", "export_checkpoint", attempt, {"dtype": dtype}, inputs, "1e11-d0024")

    def export(self, spec: ArtifactSpec) -> Artifact:
        """Build and commit an export as a worker does."""
        with self.store.writer(spec) as writer:
            options = BuildOptions(self.scratch)
            outcome = export_checkpoint(Build(spec, self.store, writer, options, lambda text: None))
            writer.commit(outcome.summary)
        return self.store.artifact(spec)


def make_lab(folder: Path, config: Mapping[str, Any] | None = None, template: str | None = None) -> Lab:
    """A lab in a folder; `config` is added to `tokenizer_config.json`, `template` is its `chat_template.jinja`."""
    store = Store(str(folder / "store"))
    commit_documents(store, _texts(), spec=CURATED, name="prose")
    tokenizer = _commit_tokenizer(store, config or {}, template)
    run = _commit_run(store, tokenizer, _commit_mixture(store, tokenizer))
    return Lab(store, run, tokenizer, folder / "scratch")


def tiny_plan() -> TrainPlan:
    """Heads whose widths together are not the model's, as nothing may rely on it."""
    recipe = RECIPES["nano"]
    plan = TrainPlan.of(recipe, recipe.candidates(1e11)[0], eval_sequences=8)
    shape = {"hidden_dim": 24, "num_layers": 2, "num_heads": 2, "head_dim": 16, "mlp_dim": 48, "vocab_size": VOCAB}
    return dataclasses.replace(plan, **shape, seq_len=48, eval_batch_size=4, steps=7)


def lively_model(plan: TrainPlan, vocab_size: int = VOCAB) -> Any:
    """The plan's model with weights so large that attention and norms matter, each norm's weights its own."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from haliax import Axis

    shapes = eqx.filter_eval_shape(model_config(plan, "").build, Axis("vocab", vocab_size), key=jax.random.PRNGKey(0))
    leaves, tree = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.PRNGKey(1), len(leaves))
    drawn = [
        jax.random.normal(key, leaf.shape, jnp.float32) * (0.25 if len(leaf.shape) > 2 else 1.0)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)


def diverged(lab: Lab) -> Lab:
    """The same lab with a run that diverged."""
    run = dataclasses.replace(lab.run, code_version="diverged")
    with lab.store.writer(run) as writer:
        writer.commit({"status": "diverged"})
    return dataclasses.replace(lab, run=run)


def _texts() -> list[str]:
    letters = random.Random(0)
    words = ["".join(letters.choices("etaoinshrdlu", k=letters.randint(2, 8))) for _ in range(100)]
    return [f"{number} {' '.join(letters.choices(words, k=letters.randint(5, 30)))}." for number in range(200)]


def _commit_tokenizer(store: Store, config: Mapping[str, Any], template: str | None) -> ArtifactSpec:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    files = {
        # Not as any library would write it: a file that is written anew shows.
        "tokenizer.json": json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True, indent=3),
        "tokenizer_config.json": json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": SPECIAL[BOS],
                "eos_token": SPECIAL[EOS],
                "model_max_length": 48,
                **config,
            }
        ),
        **({} if template is None else {"chat_template.jinja": template}),
    }
    spec = ArtifactSpec("tokenizer/test", "fetch_tokenizer", "1")
    with store.writer(spec) as writer:
        for name, text in files.items():
            with writer.open(name) as file:
                file.write(text.encode())
        writer.commit({"vocab_size": VOCAB})
    return spec


def _commit_mixture(store: Store, tokenizer: ArtifactSpec) -> ArtifactSpec:
    tokenized = ArtifactSpec("tokenized/prose", "tokenize", "1", {}, {"curated": CURATED, "tokenizer": tokenizer})
    source = Source("prose", FolderOrigin("nowhere"), "MIT", Layout("jsonl"))
    curated, tokenizer_artifact = store.artifact(CURATED), store.artifact(tokenizer)
    with store.writer(tokenized) as writer:
        stage = tokenize_stage(source, curated, tokenizer_artifact, 0.2, "document", writer, lambda text: None)
        writer.commit(run_stage(stage, writer))
    mixture = ArtifactSpec("mixture/test", "mix", "1", {}, {"tokenizer": tokenizer, "tokenized/prose": tokenized})
    config = MixtureConfig.from_profile({"name": "test", "block_size": 4, "weights": {"prose": 1.0}})
    with store.writer(mixture) as writer:
        components = {"prose": store.artifact(tokenized)}
        writer.commit(build_mixture(config, components, writer, lambda text: None))
    return mixture


def _commit_run(store: Store, tokenizer: ArtifactSpec, mixture: ArtifactSpec) -> ArtifactSpec:
    from levanter.checkpoint import save_checkpoint

    plan = tiny_plan()
    run = ArtifactSpec("checkpoints/delphi", "train", "1", {"plan": plan.to_json()}, {"mixture": mixture})
    with store.writer(run) as writer:
        folder = writer.path("checkpoints", f"step-{plan.steps - 1}")
        save_checkpoint({"model": lively_model(plan)}, plan.steps - 1, folder, is_temporary=False)
        writer.write_json("plan.json", plan.to_json())
        writer.commit({"status": "succeeded"})
    return run
