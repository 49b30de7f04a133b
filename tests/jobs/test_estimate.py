"""Estimates of jobs, and what is refused because of them."""

import pytest

from marin_core.errors import MarinError
from marin_core.jobs.estimate import check_fits, estimate, refuse_flops, refuse_too_many_flops
from marin_core.jobs.spec import JobSpec
from marin_core.recipes import RECIPES, TrainPlan
from marin_core.store import ArtifactSpec

DELPHI = RECIPES["delphi"]
PRICES = {"v5p": 4.2, "v4": 3.22}


def cell(flops: float, width: int, *pools: str) -> JobSpec:
    candidate = DELPHI.candidate(flops, width)
    plan = TrainPlan.of(DELPHI, candidate, eval_sequences=4096)
    spec = ArtifactSpec("checkpoints/delphi", "train", "2", {"plan": plan.to_json()}, partition=candidate.key)
    return JobSpec(spec, pools)


def test_a_run_s_time_and_price_follow_from_its_flops_the_chips_and_the_utilization() -> None:
    found = estimate(cell(3e20, 2304, "v5p-16"), 0.4, PRICES)
    assert (found.artifact, found.pool, found.chips) == ("checkpoints/delphi [3e20-d2304]", "v5p-16", 8)
    assert (found.tokens, found.flops) == (18_617_466_880, 3e20)
    hours = 3e20 / (8 * 459e12 * 0.4) / 3600
    assert found.hours == pytest.approx(hours)
    assert found.chip_hours == pytest.approx(8 * hours)
    assert found.cost == pytest.approx(4.2 * 8 * hours)


def test_a_run_s_memory_is_given_per_chip() -> None:
    on_eight, on_sixteen = (estimate(cell(3e20, 2304, name), 0.4, PRICES) for name in ("v5p-16", "v5p-32"))
    assert on_eight.hbm_gib_available == 95
    # 2 · (12 · 2.54e9 parameters + 17 layers of 128 · 4096 · 2304 · 18 bytes + twice the embedding) over 8 chips.
    assert on_eight.hbm_gib_reserved == pytest.approx(93.3, abs=0.05)
    assert on_eight.hbm_gib_needed is not None and on_sixteen.hbm_gib_needed is not None
    assert on_eight.hbm_gib_needed == pytest.approx(2 * on_sixteen.hbm_gib_needed)


def test_what_is_not_known_is_none() -> None:
    on_cpu = estimate(cell(3e18, 512, "cpu-4"), 0.4, {"cpu": 0.05})
    assert (on_cpu.hours, on_cpu.chip_hours, on_cpu.cost, on_cpu.hbm_gib_needed) == (None, None, None, None)
    unpriced = estimate(cell(3e18, 512, "v6e-8"), 0.4, PRICES)
    assert unpriced.hours is not None
    assert unpriced.cost is None


def test_a_data_stage_has_the_cores_of_all_its_ranks_and_nothing_that_only_training_has() -> None:
    job = JobSpec(ArtifactSpec("tokenized/code", "tokenize", "2"), ("cpu-4",), ranks=8)
    found = estimate(job, 0.4, PRICES)
    assert (found.job, found.chips) == (job.name, 32)
    assert (found.tokens, found.flops, found.hours, found.cost) == (None, None, None, None)
    check_fits(found)


def test_of_equal_pools_the_first_is_estimated_and_the_smallest_memory_counts() -> None:
    found = estimate(cell(3e20, 2304, "v5p-16", "v4-16"), 0.4, PRICES)
    assert (found.pool, found.hbm_gib_available) == ("v5p-16", 32)


def test_a_run_that_fits_is_not_refused() -> None:
    for flops, width in ((3e18, 1024), (3e20, 1280), (3e20, 4096)):
        check_fits(estimate(cell(flops, width, "v5p-16"), 0.4, PRICES))


def test_a_run_for_which_the_published_launches_would_take_more_is_marked_not_refused() -> None:
    tight = estimate(cell(3e20, 1280, "v5p-16"), 0.4, PRICES)
    assert tight.is_tight
    assert not estimate(cell(3e20, 4096, "v5p-16"), 0.4, PRICES).is_tight
    check_fits(tight)


def test_a_model_larger_than_the_memory_is_refused_with_the_smallest_slice_that_holds_it() -> None:
    with pytest.raises(MarinError) as refusal:
        check_fits(estimate(cell(3e20, 4096, "v6e-4"), 0.4, PRICES))
    assert str(refusal.value) == (
        "checkpoints/delphi [3e20-d4096] does not fit v6e-4: it needs at least 43.4 GiB of HBM per chip, "
        "which has 32; the smallest v6e that does is v6e-8"
    )


def test_any_of_the_equal_pools_must_hold_the_model() -> None:
    with pytest.raises(MarinError, match=r"does not fit v4-8: .* the smallest v4 that does is v4-16"):
        check_fits(estimate(cell(3e20, 4096, "v5p-8", "v4-8"), 0.4, PRICES))


def test_a_batch_smaller_than_the_chips_is_shared_by_tensor_parallelism() -> None:
    # 2 and 8 chips to a sequence; two devices a chip; four slices of four chips.
    for pool in ("v5p-32", "v5p-128", "tpu7x-16", "4xv6e-4"):
        check_fits(estimate(cell(3e18, 1024, pool), 0.4, PRICES))


def test_a_batch_that_the_devices_cannot_share_is_refused() -> None:
    with pytest.raises(MarinError) as refusal:
        check_fits(estimate(cell(3e18, 1024, "v5p-256"), 0.4, PRICES))
    assert str(refusal.value) == (
        "checkpoints/delphi [3e18-d1024] cannot run on v5p-256: its batch of 8 sequences of width 1024 cannot be "
        "shared by 128 devices with at most 8 to a sequence; the smallest v5p that does is v5p-8"
    )
    with pytest.raises(MarinError, match=r"sequences of width 1024 cannot be shared by 3 devices"):
        check_fits(estimate(cell(3e18, 1024, "3xcpu-4"), 0.4, PRICES))
    # Two groups in each of three slices.
    with pytest.raises(MarinError, match=r"its batch of 8 sequences does not divide among 6 groups of 2 devices"):
        check_fits(estimate(cell(3e18, 1024, "3xv6e-4"), 0.4, PRICES))


def test_a_run_that_no_slice_of_the_family_can_take_is_refused_without_naming_one() -> None:
    with pytest.raises(MarinError, match="no v5e does; `marin pools` prints the others"):
        check_fits(estimate(cell(1e23, 5376, "v5e-256"), 0.4, PRICES))


def test_more_flops_than_allowed_are_refused_with_the_number_that_lifts_it() -> None:
    jobs = [cell(3e18, 1024, "cpu-1"), cell(3e20, 2304, "cpu-1")]
    with pytest.raises(MarinError) as refusal:
        refuse_too_many_flops([*jobs, JobSpec(ArtifactSpec("raw/code", "acquire", "1"), ("cpu-1",))], 3e20)
    assert str(refusal.value) == (
        "these 2 runs need 3.03e20 training FLOPs, more than the 3e20 of max_flops in [place]; raise it, "
        "or for this once set MARIN_MAX_FLOPS=3.1e20"
    )
    refuse_too_many_flops(jobs, 3.1e20)
    refuse_too_many_flops(jobs, 3.03e20)
    refuse_too_many_flops(jobs, None)
    refuse_too_many_flops([], 1.0)


@pytest.mark.parametrize("flops", [1.000001e21, 6e21, 9.96e21, 9.999e21, 3.2e12, 7.8e21])
def test_the_number_that_lifts_the_limit_is_enough(flops: float) -> None:
    with pytest.raises(MarinError, match="this run needs") as refusal:
        refuse_flops(flops, 1, 1e11)
    limit = float(str(refusal.value).rpartition("MARIN_MAX_FLOPS=")[2])
    refuse_flops(flops, 1, limit)
    assert limit <= 1.1 * flops
