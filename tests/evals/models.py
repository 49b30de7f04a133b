"""A small lab of evaluations: documents, tokenizers, and models that are initialised and never trained."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from marin_core.build import Build, BuildOptions, Outcome
from marin_core.data.tokens.tokenizer import train_tokenizer
from marin_core.recipes import RECIPES, TrainPlan
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
from marin_core.training.model import model_config
from tests.data.parts import commit_documents

SEQ_LEN = 32
TEXTS = [
    "def area(width, height):\n    return width * height  # in m², not in ft²\n" * 2,
    "The naïve estimate was 3.14159 — the exact one is not known.\n\nSee <|end_of_text|> and https://example.org/é.\n",
    "日本語のテキストと, some English; 12345 numbers\tand tabs.\n" * 3,
    "x = [i for i in range(100) if i % 7]\nprint(sum(x))\n",
]


def commit_texts(store: Store, name: str, texts: Sequence[str] = TEXTS) -> ArtifactSpec:
    spec = ArtifactSpec(f"curated/{name}", "curate", "1", {"texts": list(texts)})
    if store.record(spec.name, spec.fingerprint) is None:
        commit_documents(store, texts, spec=spec, name=name)
    return spec


def commit_tokenizer(store: Store, vocab_size: int, texts: Sequence[str] = TEXTS) -> ArtifactSpec:
    documents = store.artifact(commit_texts(store, "tokenizer", texts))
    spec = ArtifactSpec(f"tokenizer/of-{vocab_size}", "train_tokenizer", "1")
    with store.writer(spec) as writer:
        writer.commit(train_tokenizer({"documents": documents}, vocab_size, 10_000, writer, lambda text: None))
    return spec


def tiny_plan(vocab_size: int, **changes: Any) -> TrainPlan:
    recipe = RECIPES["nano"]
    plan = TrainPlan.of(recipe, recipe.candidates(1e11)[0], eval_sequences=8)
    sizes = {"hidden_dim": 16, "num_layers": 2, "num_heads": 2, "head_dim": 8, "mlp_dim": 32, "params": 10_000}
    shape = {"vocab_size": vocab_size, "seq_len": SEQ_LEN, "eval_batch_size": 4, "steps": 3, "precision": "f32"}
    return dataclasses.replace(plan, **{**sizes, **shape, **changes})


def commit_model(
    store: Store,
    plan: TrainPlan,
    tokenizer: ArtifactSpec,
    change: Callable[[Any], Any] = lambda model: model,
    partition: str = "1e11-d0016",
) -> ArtifactSpec:
    """A training artifact whose last checkpoint holds the model as it is initialised, `change`d."""
    import equinox as eqx
    import jax
    from haliax import Axis
    from levanter.checkpoint import save_checkpoint

    spec = ArtifactSpec("checkpoints/delphi", "train", "1", {"plan": plan.to_json()}, partition=partition)
    config, vocab = model_config(plan, store.url(tokenizer)), Axis("vocab", plan.vocab_size)
    model = eqx.filter_jit(lambda key: config.build(vocab, key=key))(jax.random.PRNGKey(plan.seed))
    with store.writer(spec) as writer:
        folder = writer.path("checkpoints", f"step-{plan.steps - 1}")
        save_checkpoint({"model": change(model)}, plan.steps - 1, folder, is_temporary=False)
        writer.write_json("plan.json", plan.to_json())
        writer.commit({"status": "succeeded", "steps": plan.steps})
    return spec


def uniform(model: Any) -> Any:
    """The model with an output layer of zeros: every token is equally likely."""
    import equinox as eqx

    return eqx.tree_at(lambda m: m.lm_head.weight, model, model.lm_head.weight * 0)


def run(store: Store, spec: ArtifactSpec, task: Callable[[Build], Outcome], scratch: Path) -> ArtifactRecord:
    """Build and commit an artifact as a worker does."""
    with store.writer(spec) as writer:
        outcome = task(Build(spec, store, writer, BuildOptions(scratch), print))
        return writer.commit(outcome.summary)


def perplexity_spec(
    checkpoint: ArtifactSpec, tokenizer: ArtifactSpec, documents: dict[str, ArtifactSpec], **config: Any
) -> ArtifactSpec:
    settings = {"max_bytes": 10_000, "framing": "document", "shares": dict.fromkeys(documents, 1.0), **config}
    roles = {f"documents/{name}": spec for name, spec in documents.items()}
    inputs = {"checkpoint": checkpoint, "tokenizer": tokenizer, **roles}
    return ArtifactSpec("evals/delphi/perplexity", "score_perplexity", "1", settings, inputs, checkpoint.partition)
