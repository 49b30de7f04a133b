"""Memory, parallelism and time of plans against the published launches."""

import dataclasses
import math

import pytest

from marin_core.cli.recipe_needs import Hardware, needs
from marin_core.errors import MarinError
from marin_core.recipes import RECIPES, TrainPlan
from marin_core.recipes.footprint import (
    hbm_bytes,
    least_hbm_bytes,
    tensor_parallel_degree,
    training_seconds,
)

DELPHI = RECIPES["delphi"]
V4 = Hardware.of("v4", None, 0.4)
# Of one chip.
V4_HBM = 32 * 2**30
# Held-out budget -> (batch, chips of the v4 slice) of the published launches: v4-128, v4-512, v4-1024.
HELD_OUT = {1e21: (512, 64), 1e22: (1024, 256), 1e23: (2048, 512)}


def plan_of(flops: float, width: int) -> TrainPlan:
    return TrainPlan.of(DELPHI, DELPHI.candidate(flops, width), eval_sequences=4096)


def held_out(flops: float) -> TrainPlan:
    return TrainPlan.of(DELPHI, DELPHI.optimal(flops), eval_sequences=4096)


def test_the_published_estimate_by_hand() -> None:
    # d1024, 11 layers, batch 8: 12 bytes a parameter, 8 of the layers at 18 bytes a value, twice the embedding.
    parameters = 12 * 447_244_032
    activations = 8 * (8 * 4096 * 1024 * 18)
    assert hbm_bytes(plan_of(3e18, 1024)) == 2 * (parameters + activations + 2 * 128_256 * 1024)


def test_a_shallow_model_counts_four_layers() -> None:
    plan = plan_of(3e18, 512)
    three, four = (dataclasses.replace(plan, num_layers=layers) for layers in (3, 5))
    assert hbm_bytes(three) == hbm_bytes(four)


def test_the_estimate_chooses_the_slice_that_the_published_run_of_1e21_had() -> None:
    own_batch = plan_of(1e21, held_out(1e21).hidden_dim)
    assert own_batch.batch_size == 256
    assert needs(own_batch, V4).chips == HELD_OUT[1e21][1]


def test_every_run_of_the_published_suite_fits_a_slice_within_the_sweep_s_limit_of_tensor_parallelism() -> None:
    for budget in (3e18, 9e18, 1.8e19, 3e19, 9e19, 1.8e20, 3e20):
        for candidate in DELPHI.candidates(budget):
            plan = TrainPlan.of(DELPHI, candidate, eval_sequences=4096)
            found = needs(plan, V4)
            assert found.chips is not None
            assert found.chips * V4_HBM >= hbm_bytes(plan)
            # The next smaller slice, of half as many chips, has not the memory.
            assert found.chips == 4 or found.chips / 2 * V4_HBM < hbm_bytes(plan)
            assert tensor_parallel_degree(plan.batch_size, plan.hidden_dim, found.chips, maximum=4) <= 2


@pytest.mark.parametrize("flops", HELD_OUT)
def test_what_no_run_can_do_without_is_less_than_the_published_runs_had(flops: float) -> None:
    batch, chips = HELD_OUT[flops]
    plan = held_out(flops)
    assert plan.batch_size == batch
    assert least_hbm_bytes(plan) < chips * V4_HBM < hbm_bytes(plan)


def test_without_gradient_checkpointing_every_activation_is_held() -> None:
    plan = plan_of(3e18, 1024)
    kept = dataclasses.replace(plan, gradient_checkpointing=False)
    assert least_hbm_bytes(plan) == 14 * plan.params + 11 * 8 * 4096 * 1024 * 2
    assert least_hbm_bytes(kept) == 14 * plan.params + 11 * 8 * 4096 * 1024 * 18


def test_nothing_fits_where_no_size_is_large_enough() -> None:
    assert needs(plan_of(1e24, max(c.hidden_dim for c in DELPHI.candidates(1e24))), V4).pool is None


@pytest.mark.parametrize(
    ("batch", "width", "chips", "degree"),
    [
        (512, 2560, 64, 1),
        (1024, 3840, 256, 1),
        (2048, 5376, 512, 2),  # 5376 / 512 is no whole number
        (8, 4096, 16, 2),  # half a sequence a chip
        (8, 3072, 24, 4),  # a third of one, rounded up to a power of two
        (8, 4096, 1, 1),
    ],
)
def test_the_tensor_parallel_degree_leaves_whole_sequences_and_whole_shards(
    batch: int, width: int, chips: int, degree: int
) -> None:
    assert tensor_parallel_degree(batch, width, chips, maximum=8) == degree


def test_more_chips_to_a_sequence_than_allowed_are_refused() -> None:
    assert tensor_parallel_degree(8, 4096, 64, maximum=8) == 8
    with pytest.raises(MarinError, match="needs more than 4 chips to a sequence; use fewer chips"):
        tensor_parallel_degree(8, 4096, 64, maximum=4)
    # No power of two leaves a number of chips that divides the width.
    with pytest.raises(MarinError, match="batch 8 of width 2048 on 24 chips"):
        tensor_parallel_degree(8, 2048, 24, maximum=8)


def test_training_time_is_flops_over_what_the_chips_do_of_them() -> None:
    assert training_seconds(3.6e21, 1e18, 0.5) == 7200
    assert math.isclose(training_seconds(1e21, 64 * 459e12, 0.4) / 3600, 23.64, rel_tol=1e-3)
