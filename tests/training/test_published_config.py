"""What a published plan becomes in Levanter, field by field against the public Marin record, and what Levanter makes of
it: parameters, FLOPs, initial weights, which optimizer a weight gets, the schedule."""

import dataclasses
import math
import operator
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from marin_core.data.mixing.order import MixtureOrder, MixtureStage
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.recipes import DELPHI, AdamHParams, TrainPlan
from marin_core.store import Store
from marin_core.training.levanter_config import Checkpointing, TrainData, levanter_config
from marin_core.training.model import model_config, trained_model
from tests.conftest import LabEnvironment
from tests.training.runs import KEPT, run_spec

if TYPE_CHECKING:
    from levanter.main.train_lm import TrainLmConfig

# Of the field's path in Levanter's configuration. Model card and launch script of the suite.
EVERY_RUN: dict[str, Any] = {
    "model.max_seq_len": 4096,
    "model.head_dim": 128,
    "model.layer_norm_epsilon": 1e-5,
    "model.use_layer_norm_weight": True,
    "model.use_bias": False,
    "model.tie_word_embeddings": False,
    "model.hybrid_norm": False,
    "model.input_embedding_norm": False,
    "model.use_sliding_window": False,
    # Layers in one stack: AdamH then keeps one norm a layer, and not one a head.
    "model.scan_layers": True,
    "model.gradient_checkpointing": True,
    "model.rope.theta": 500_000,
    "model.rope.factor": 8,
    "model.rope.low_freq_factor": 1,
    "model.rope.high_freq_factor": 4,
    "model.rope.original_max_position_embeddings": 8192,
    "optimizer.beta1": 0.9,
    "optimizer.max_grad_norm": 0.1,
    "optimizer.lr_schedule": "linear",
    "optimizer.warmup": 0.1,
    "optimizer.decay": 0.2,
    "optimizer.rewarmup": 0.0,
    "optimizer.min_lr_ratio": 0.0,
    "optimizer.cycles": None,
    "optimizer.cycle_length": None,
    "optimizer.cooldown": None,
    "data.block_cross_document_attention": True,
    "data.auto_build_caches": False,
    "train_seq_len": 4096,
    "trainer.seed": 0,
    "trainer.steps_per_eval": 1000,
    "trainer.quantization": None,
    "trainer.model_averaging": None,
    "trainer.per_device_parallelism": -1,
    "trainer.checkpointer.save_interval": timedelta(minutes=10),
    "trainer.checkpointer.keep": [{"every": 5000}],
    "trainer.checkpointer.append_run_id_to_base_path": False,
    "trainer.mesh.axes": {"data": -1, "replica": 1, "model": 1},
    "trainer.mesh.param_mapping": {"embed": "data"},
    "trainer.mesh.resolved_compute_mapping": {
        "batch": ("replica_dcn", "replica", "data"),
        "mlp": "model",
        "heads": "model",
        "kv_head": "model",
    },
}
# Rates to four digits, as far as they are published.
RUNS: dict[tuple[float, int], dict[str, Any]] = {
    (3e18, 1024): {
        "model.hidden_dim": 1024,
        "model.num_layers": 11,
        "model.num_heads": 8,
        "model.num_kv_heads": 8,
        "model.intermediate_dim": 4096,
        "trainer.train_batch_size": 8,
        "trainer.num_train_steps": 37_335,
        "optimizer.learning_rate": 2.760e-3,
        "optimizer.adam_lr": 3.3155e-4,
        "optimizer.epsilon": 3.660e-8,
        "optimizer.beta2": 0.9999,
        "z_loss_weight": 1e-7,
    },
    (1e21, 2560): {
        "model.hidden_dim": 2560,
        "model.num_layers": 26,
        "model.num_heads": 20,
        "model.num_kv_heads": 20,
        "model.intermediate_dim": 10_240,
        "trainer.train_batch_size": 512,
        "trainer.num_train_steps": 22_057,
        "optimizer.learning_rate": 7.425e-3,
        "optimizer.adam_lr": 4.314e-4,
        "optimizer.epsilon": 2.81e-8,
        "optimizer.beta2": 0.9992,
        "z_loss_weight": 0.0,
    },
}
WIDTHS = [512, 896, 1280, 2560, 3840, 5376]
ADAMH = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
ADAM = ("token_embeddings", "layernorm", "transformer.norm", "q_norm", "k_norm")


def published(flops: float, width: int) -> TrainPlan:
    candidate = DELPHI.as_published(DELPHI.candidate(flops, width))
    return TrainPlan.of(DELPHI, candidate, eval_sequences=4096)


def config_of(plan: TrainPlan) -> "TrainLmConfig":
    from levanter.tracker import NoopConfig

    order = MixtureOrder(2048, [MixtureStage(0, {"text": 2048})], {"text": 10}, {"text": 10}, plan.seed)
    every_seconds = load_profile("delphi").place.checkpoint_every_seconds
    checkpointing = Checkpointing("checkpoints", every_seconds, None, None, lambda step: False, lambda: None)
    data = TrainData("tokenizer", {"text": "tokenized/text"}, order)
    return levanter_config(plan, data, checkpointing, NoopConfig(), "run", Path("log"))


def small(**fields: Any) -> TrainPlan:
    """The published architecture at a size that a test initialises."""
    fields = {"hidden_dim": 256, "num_layers": 2, "num_heads": 2, "mlp_dim": 1024, "vocab_size": 2048} | fields
    return dataclasses.replace(published(3e18, 1024), **fields)


def adam_lr(plan: TrainPlan) -> float:
    assert isinstance(plan.optimizer, AdamHParams)
    return plan.optimizer.adam_lr


def initial_model(plan: TrainPlan) -> Any:
    """As Levanter's `train_lm` draws it from a seed."""
    import equinox
    import jax
    from haliax import Axis

    _, _, model_key, _ = jax.random.split(jax.random.PRNGKey(plan.seed), 4)
    build = equinox.filter_jit(model_config(plan, "tokenizer").build)
    return build(Axis("vocab", plan.vocab_size), key=model_key)


def weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Dotted path and named array of every weight."""
    import haliax
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(model, is_leaf=lambda leaf: isinstance(leaf, haliax.NamedArray))
    return ((jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in leaves)


def kind(path: str) -> str:
    (found,) = [name for name in (*ADAMH, *ADAM) if name in path]
    return found


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run[0]:g}-d{run[1]}")
def test_every_field_is_the_published_one(run: tuple[float, int]) -> None:
    import jmp

    config = config_of(published(*run))
    expected = EVERY_RUN | RUNS[run]
    found = {path: operator.attrgetter(path)(config) for path in expected}
    rates = {path for path, value in RUNS[run].items() if isinstance(value, float)}
    assert {p: v for p, v in found.items() if p not in rates} == {p: v for p, v in expected.items() if p not in rates}
    for path in rates:
        assert found[path] == pytest.approx(expected[path], rel=2e-3), path
    model: Any = config.model
    assert type(model).__name__ == "Qwen3Config"
    assert type(model.rope).__name__ == "Llama3RotaryEmbeddingsConfig"
    assert type(config.optimizer).__name__ == "AdamHConfig"
    assert config.trainer.mp == jmp.get_policy("p=f32,c=bfloat16")
    qk_norm = model.attention_config().qk_norm
    assert (qk_norm.eps, qk_norm.use_weight, qk_norm.use_bias) == (1e-5, True, False)
    # Nothing is exported or evaluated in the loop but the validation losses.
    assert (config.hf_save_path, config.eval_harness, config.labeled_eval) == (None, None, None)


def test_no_field_of_the_optimizer_is_left_to_the_library() -> None:
    """A default that matters and that we do not set would be a difference that nobody sees."""
    from levanter.optim.adamh import AdamHConfig

    optimizer = config_of(published(3e18, 1024)).optimizer
    left = {f.name for f in dataclasses.fields(AdamHConfig) if getattr(optimizer, f.name) == f.default}
    # beta1's default is the published value; weight decay has no effect in AdamH; the others are off.
    off = {"rewarmup", "cooldown", "cycle_length", "cycles", "haps", "weight_decay_modules"}
    assert left == {"beta1", "weight_decay", "default_weight_decay_mask"} | off


@pytest.mark.parametrize("width", WIDTHS)
def test_parameters_and_flops_are_levanter_s_own(width: int) -> None:
    import equinox
    import jax
    from haliax import Axis

    layers = DELPHI.num_layers(width)
    plan = small(
        hidden_dim=width, num_layers=layers, num_heads=width // 128, mlp_dim=4 * width, vocab_size=DELPHI.vocab_size
    )
    config = model_config(plan, "tokenizer")
    model = equinox.filter_eval_shape(config.build, Axis("vocab", plan.vocab_size), key=jax.random.PRNGKey(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(model) if hasattr(leaf, "shape")]
    assert sum(math.prod(shape) for shape in shapes) == DELPHI.params(width)
    # The library's own count leaves out the two QK-norm weights of each layer.
    assert config.total_trainable_params(plan.vocab_size) + 256 * layers == DELPHI.params(width)
    assert 3 * config.flops_per_token(plan.vocab_size, plan.seq_len) == DELPHI.flops_per_token(width)


def test_initial_weights_have_the_published_spread() -> None:
    """Truncated at 3 sigma, which leaves 0.986 of the spread."""
    plan = small()
    sigma = dict.fromkeys(ADAMH, 1 / math.sqrt(plan.hidden_dim))
    sigma |= {"down_proj": 1 / math.sqrt(plan.mlp_dim), "token_embeddings": 1 / plan.hidden_dim}
    seen = set()
    for path, weight in weights(initial_model(plan)):
        values = np.asarray(weight.array)
        seen.add(kind(path))
        if kind(path) in sigma:
            assert values.std() == pytest.approx(0.986 * sigma[kind(path)], rel=0.01), path
            assert abs(values.mean()) < 0.01 * values.std()
            assert np.abs(values).max() <= 3.001 * sigma[kind(path)]
        else:
            assert (values == 1).all(), path
    assert seen == {*ADAMH, *ADAM}


def test_each_weight_is_in_its_published_group() -> None:
    """AdamH has every matrix, the head too; the embedding and all norms are plain Adam's."""
    import jax

    optimizer: Any = config_of(small()).optimizer
    leaves, _ = jax.tree_util.tree_flatten_with_path(optimizer.create_mask(initial_model(small())))
    groups = {jax.tree_util.keystr(path): label for path, label in leaves}
    assert {path: label for path, label in groups.items() if label == "adamh"}.keys() == {
        path for path in groups if kind(path) in ADAMH
    }
    assert {label for path, label in groups.items() if kind(path) in ADAM} == {"adam"}


def test_the_schedule_is_the_published_one() -> None:
    plan = small(steps=1000)
    plan = dataclasses.replace(plan, optimizer=dataclasses.replace(plan.optimizer, learning_rate=0.0063))
    optimizer = config_of(plan).optimizer
    rate, adam_rate = optimizer.lr_scheduler(1000), optimizer.lr_scheduler(1000, override_lr=adam_lr(plan))
    expected = {0: 0, 1: 6.3e-5, 50: 3.15e-3, 100: 6.3e-3, 500: 6.3e-3, 800: 6.3e-3, 801: 6.2685e-3, 900: 3.15e-3}
    expected |= {999: 3.15e-5, 1000: 0}
    for step, value in expected.items():
        assert float(rate(step)) == pytest.approx(value, rel=1e-5, abs=1e-12), step
        assert float(adam_rate(step)) == pytest.approx(value / 0.0063 * adam_lr(plan), rel=1e-5, abs=1e-12)


@pytest.mark.slow
def test_training_keeps_the_norm_of_each_matrix_and_of_nothing_else(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store, tmp_path: Path
) -> None:
    _, graph = shards
    run = uninterrupted.artifact(run_spec(graph))
    plan = TrainPlan.from_json(run.record.payload["config"]["plan"])
    before = dict(weights(initial_model(plan)))
    # The one of the way: rounding to float32 adds 1.4e-8 a step.
    checkpoint = run.path("checkpoints", f"step-{KEPT[0]}")
    with trained_model(plan, checkpoint, uninterrupted.artifact(graph.tokenizer).url, tmp_path) as trained:
        after = {path: np.asarray(weight.array, np.float64) for path, weight in weights(trained.model)}
    assert before.keys() == after.keys()
    moved = {}
    for path, weight in before.items():
        old, new = np.asarray(weight.array, np.float64), after[path]
        # Of a stack of layers each has a norm of its own.
        axes = tuple(range(1 if "stacked" in path and old.ndim > 1 else 0, old.ndim))
        norms = [np.sqrt(np.square(array).sum(axis=axes)) for array in (old, new)]
        change = np.abs(norms[1] / norms[0] - 1).max()
        moved[kind(path)] = max(change, moved.get(kind(path), 0))
        assert np.abs(new - old).max() > 1e-3 * np.abs(old).max(), path
        if kind(path) in ADAMH:
            assert change < 1e-6, path
    assert all(moved[name] > 1e-4 for name in ADAM), moved


@pytest.mark.slow
def test_a_run_follows_the_schedule_of_its_plan(shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store) -> None:
    import polars as pl

    run = uninterrupted.artifact(run_spec(shards[1]))
    plan = TrainPlan.from_json(run.record.payload["config"]["plan"])
    optimizer = config_of(plan).optimizer
    with run.open("metrics.parquet") as file:
        table = pl.read_parquet(file)
    rate, adam_rate = optimizer.lr_scheduler(plan.steps), optimizer.lr_scheduler(plan.steps, adam_lr(plan))
    steps = table["step"].to_list()
    assert table["learning_rate"].to_list() == pytest.approx([float(rate(step)) for step in steps], rel=1e-5, abs=1e-9)
    assert table["adam_lr"].to_list() == pytest.approx([float(adam_rate(step)) for step in steps], rel=1e-5, abs=1e-9)
