"""A run on several devices is the run on one: data and tensor parallelism, and evaluations that do not divide."""

import pytest

from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.recipes import DELPHI, TrainPlan
from marin_core.recipes.layout import DeviceLayout, evaluation_batch, evaluation_layout, training_layout
from marin_core.store import ArtifactSpec, Store
from tests.conftest import LabEnvironment
from tests.training.runs import CELL, altered, copied_store, losses, train_all

STEPS = 12
# 4 heads, of which two devices have two each; one batch of which 4 devices in 2 groups have one sequence a group.
# Evaluations of 20 sequences in batches of 5, which 4 devices round up.
SHAPE = {"hidden_dim": 32, "num_heads": 4, "mlp_dim": 128, "num_layers": 2, "batch_size": 2, "steps": STEPS}
EVALUATION = {"eval_sequences": 20, "eval_batch_size": 5}
# Relative, of every loss. Sums in another order differ in the last bits, which training magnifies.
F32_TOLERANCE = 1e-5
# bfloat16 has 8 bits: 3e-5 was measured of the first losses, 6e-3 after twelve steps.
BF16_TOLERANCE = 2e-2
BF16_FIRST_TOLERANCE = 2e-4


def published(flops: float, width: int) -> TrainPlan:
    candidate = DELPHI.as_published(DELPHI.candidate(flops, width))
    return TrainPlan.of(DELPHI, candidate, eval_sequences=4096)


@pytest.fixture(scope="module")
def specs(shards: tuple[LabEnvironment, LabGraph]) -> dict[str, ArtifactSpec]:
    spec = shards[1].cells[CELL]
    return {
        "heads shared": altered(spec, **SHAPE, **EVALUATION),
        # 7 heads cannot be shared by two devices; the MLP is.
        "heads whole": altered(spec, steps=STEPS, **EVALUATION, precision="p=f32,c=bfloat16"),
    }


@pytest.fixture(scope="module")
def alone(shards: tuple[LabEnvironment, LabGraph], specs: dict[str, ArtifactSpec]) -> Store:
    """The runs on one device."""
    store = copied_store(shards[0], "one-device")
    train_all(shards[0], store, specs.values())
    return store


@pytest.fixture(scope="module")
def together(shards: tuple[LabEnvironment, LabGraph], specs: dict[str, ArtifactSpec]) -> Store:
    """The runs on four devices, which must share two sequences."""
    store = copied_store(shards[0], "four-devices")
    train_all(shards[0], store, specs.values(), devices=4)
    return store


def difference(a: "list[float]", b: "list[float]") -> float:
    """Largest, relative."""
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tolerance"), [("heads shared", F32_TOLERANCE), ("heads whole", BF16_TOLERANCE)])
def test_two_devices_to_a_sequence_train_what_one_trains(
    specs: dict[str, ArtifactSpec], alone: Store, together: Store, name: str, tolerance: float
) -> None:
    spec = specs[name]
    mine, theirs = losses(together, spec), losses(alone, spec)
    assert len(mine) == STEPS
    assert mine[-1] < mine[0]
    assert difference(mine, theirs) < tolerance
    assert difference(mine[:2], theirs[:2]) < min(tolerance, BF16_FIRST_TOLERANCE)
    evals, expected = (store.artifact(spec).read_json("evals.json") for store in (together, alone))
    of_losses = [key for key in expected if key.endswith("loss")]
    # Levanter's bits per byte are means over batches, whatever their bytes, and so depend on the batch.
    assert len(of_losses) > 4
    assert difference([evals[key] for key in of_losses], [expected[key] for key in of_losses]) < tolerance


@pytest.mark.slow
def test_a_record_says_on_what_a_run_ran(specs: dict[str, ArtifactSpec], alone: Store, together: Store) -> None:
    spec = specs["heads shared"]
    records = [store.artifact(spec).record for store in (alone, together)]
    assert [record.summary["hardware"] for record in records] == [
        {"device": "cpu", "count": 1, "processes": 1},
        {"device": "cpu", "count": 4, "processes": 1},
    ]
    assert records[0].summary["attempts"] == {"preempted": 0, "peer_lost": 0, "failed": 0, "died": 0}


def test_a_model_that_is_evaluated_shares_its_heads_among_devices() -> None:
    layout = evaluation_layout(published(3e18, 1024), 16)
    assert layout == DeviceLayout(slices=1, data=16, tensor=1, shares_heads=True)
    # 896 = 7 · 128.
    assert evaluation_layout(published(3e18, 896), 256) == DeviceLayout(1, 128, 2, shares_heads=False)
    with pytest.raises(MarinError, match=r"^its width of 1024 does not divide among 7 devices$"):
        evaluation_layout(published(3e18, 1024), 7)


def test_the_published_held_out_runs_fit_the_slices_they_ran_on() -> None:
    """Launched on v4-128, v4-512 and v4-1024, of half as many chips (public launch scripts of the suite)."""
    layouts = [training_layout(published(*run), chips) for run, chips in (((1e21, 2560), 64), ((1e22, 3840), 256))]
    assert [(layout.data, layout.tensor) for layout in layouts] == [(64, 1), (256, 1)]
    # 5376 does not divide by 512.
    largest = training_layout(published(1e23, 5376), 512)
    assert (largest.data, largest.tensor) == (256, 2)


def test_a_batch_is_divided_among_slices_and_what_is_left_of_each() -> None:
    plan = published(3e18, 1024)
    assert training_layout(plan, 16) == DeviceLayout(slices=1, data=8, tensor=2, shares_heads=True)
    assert training_layout(plan, 16, slices=4) == DeviceLayout(slices=4, data=2, tensor=2, shares_heads=True)
    assert training_layout(published(3e18, 896), 16).shares_heads is False
    with pytest.raises(MarinError, match=r"^its batch of 8 sequences of width 1024 cannot be shared by 128 devices"):
        training_layout(plan, 128)


def test_an_evaluation_s_batch_is_rounded_up_to_what_the_devices_share() -> None:
    plan = published(1e23, 5376)
    assert evaluation_batch(plan, training_layout(plan, 512)) == 512
    assert evaluation_batch(plan, DeviceLayout(1, 3, 1, shares_heads=True)) == 513
    assert evaluation_batch(plan, DeviceLayout(2, 512, 1, shares_heads=True)) == 1024
