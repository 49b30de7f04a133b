"""What a plan with AdamW becomes in Levanter: settings, schedule, and which weights decay, in real steps too."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marin_core.graph import LabGraph
from marin_core.recipes import AdamWParams, TrainPlan
from marin_core.training.model import trained_model
from tests.conftest import LabEnvironment
from tests.training.runs import CELL, altered, copied_store, train_all
from tests.training.test_published_config import ADAM, ADAMH, config_of, initial_model, kind, small, weights

ADAMW = AdamWParams(
    learning_rate=0.003,
    weight_decay=0.2,
    epsilon=3e-8,
    beta1=0.8,
    beta2=0.97,
    max_grad_norm=0.5,
    warmup=0.1,
    decay=0.2,
    min_lr_ratio=0.05,
    z_loss_weight=1e-5,
)


def test_a_plan_with_adamw_survives_json_and_is_told_from_adamh() -> None:
    plan = small(optimizer=ADAMW)
    assert TrainPlan.from_json(plan.to_json()) == plan
    assert TrainPlan.from_json(small().to_json()) == small()
    assert type(small().optimizer) is not type(plan.optimizer)


def test_every_setting_reaches_levanter() -> None:
    config = config_of(small(optimizer=ADAMW))
    assert type(config.optimizer).__name__ == "AdamConfig"
    settings = dataclasses.asdict(ADAMW)
    assert config.z_loss_weight == settings.pop("z_loss_weight")
    assert {name: getattr(config.optimizer, name) for name in settings} == settings
    assert config.optimizer.lr_schedule == "linear"


def test_only_what_is_off_is_left_to_the_library() -> None:
    from levanter.optim.config import AdamConfig

    optimizer = config_of(small(optimizer=ADAMW)).optimizer
    left = {f.name for f in dataclasses.fields(AdamConfig) if getattr(optimizer, f.name) == f.default}
    schedule = {"rewarmup", "cooldown", "cycle_length", "cycles", "haps"}
    assert left == schedule | {
        "weight_decay_modules",
        "nesterov",
        "update_rms_clipping",
        "clip_update_norm",
        "skip_bad_steps",
        "adamc_weight_decay",
    }


def test_the_schedule_warms_up_holds_and_decays_to_its_floor() -> None:
    rate = config_of(small(optimizer=ADAMW, steps=1000)).optimizer.lr_scheduler(1000)
    expected = {0: 0, 1: 3e-5, 50: 1.5e-3, 100: 3e-3, 500: 3e-3, 800: 3e-3, 900: 1.575e-3, 1000: 1.5e-4}
    assert {step: float(rate(step)) for step in expected} == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_without_a_gradient_matrices_shrink_and_nothing_else_moves() -> None:
    """Then Adam's own update is zero, and what is left of a step is the decay."""
    import equinox
    import jax
    import optax

    plan = small(optimizer=dataclasses.replace(ADAMW, warmup=0.0), steps=100)
    model = equinox.filter(initial_model(plan), equinox.is_array)
    optimizer = config_of(plan).optimizer.build(plan.steps)
    updates, _ = optimizer.update(jax.tree.map(lambda w: 0 * w, model), optimizer.init(model), model)
    before, after = dict(weights(model)), dict(weights(optax.apply_updates(model, updates)))
    seen = set()
    for path, weight in before.items():
        seen.add(kind(path))
        kept = 1 - ADAMW.learning_rate * ADAMW.weight_decay if kind(path) in ADAMH else 1.0
        np.testing.assert_allclose(np.asarray(after[path].array), kept * np.asarray(weight.array), rtol=1e-6)
    assert seen == {*ADAMH, *ADAM}


@pytest.mark.slow
def test_a_run_decays_its_matrices_and_follows_its_schedule(
    shards: tuple[LabEnvironment, LabGraph], tmp_path: Path
) -> None:
    lab, graph = shards
    store = copied_store(lab, "adamw")
    # So strong a decay that no gradient makes up for it.
    spec = altered(graph.cells[CELL], optimizer=dataclasses.replace(ADAMW, weight_decay=30.0))
    train_all(lab, store, [spec])
    run = store.artifact(spec)
    plan = TrainPlan.from_json(run.record.payload["config"]["plan"])
    checkpoint = run.path("checkpoints", f"step-{plan.steps - 1}")
    before = _norms(initial_model(plan))
    with trained_model(plan, checkpoint, store.artifact(graph.tokenizer).url, tmp_path) as trained:
        after = _norms(trained.model)
    assert before.keys() == after.keys() == {*ADAMH, *ADAM}
    assert all(after[name] < 0.5 * before[name] for name in ADAMH), (before, after)
    assert all(after[name] > 0.8 * before[name] for name in ADAM), (before, after)

    with run.open("metrics.parquet") as file:
        table = pl.read_parquet(file)
    rate = config_of(plan).optimizer.lr_scheduler(plan.steps)
    expected = [float(rate(step)) for step in table["step"]]
    assert table["learning_rate"].to_list() == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert table["adam_lr"].null_count() == len(table) == plan.steps


def _norms(model: Any) -> dict[str, float]:
    """Of each kind of weight."""
    squares: dict[str, float] = {}
    for path, weight in weights(model):
        found = float(np.square(np.asarray(weight.array, np.float64)).sum())
        squares[kind(path)] = squares.get(kind(path), 0.0) + found
    return {name: square**0.5 for name, square in squares.items()}
