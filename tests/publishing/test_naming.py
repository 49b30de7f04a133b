"""Names of published models, held against those of the public record."""

import pytest

from marin_core.publishing.naming import model_name, short_count
from marin_core.recipes import RECIPES, Candidate, TrainPlan

DELPHI = RECIPES["delphi"]


def plan_of(candidate: Candidate, seed: int = 0) -> TrainPlan:
    return TrainPlan.of(DELPHI, candidate, eval_sequences=64, seed=seed)


@pytest.mark.parametrize(
    ("flops", "hidden_dim", "published"),
    [
        (3e18, 1024, "delphi-3e18-447Mparams-1.2Btokens"),
        (9e18, 640, "delphi-9e18-210Mparams-9.1Btokens"),
        (9e18, 896, "delphi-9e18-358Mparams-4.7Btokens"),
        (9e18, 1280, "delphi-9e18-669Mparams-2.3Btokens"),
        (1.8e19, 640, "delphi-2e19-210Mparams-18.2Btokens"),
        (1.8e19, 1408, "delphi-2e19-837Mparams-3.6Btokens"),
        (3e19, 1536, "delphi-3e19-998Mparams-5Btokens"),
        (9e19, 1792, "delphi-9e19-1.4Bparams-10.6Btokens"),
        (1.8e20, 2048, "delphi-2e20-1.9Bparams-14.8Btokens"),
        (3e20, 2304, "delphi-3e20-2.5Bparams-18.6Btokens"),
    ],
)
def test_cells_of_the_ladder_are_called_as_published(flops: float, hidden_dim: int, published: str) -> None:
    assert model_name(plan_of(DELPHI.candidate(flops, hidden_dim))) == published


def test_a_held_out_run_names_its_seed() -> None:
    plan = plan_of(DELPHI.as_published(DELPHI.candidate(1e22, 3840)), seed=42)
    assert model_name(plan) == "delphi-1e22-9.7Bparams-160Btokens-seed42"


@pytest.mark.parametrize(
    ("number", "short"),
    [
        (512, "512"),
        (92_392, "92.4K"),
        (99_949, "99.9K"),
        (99_950, "100K"),
        (999_499, "999K"),
        (999_500, "1M"),
        (999_999_999, "1B"),
        (24_963_098_112, "25B"),
        (628_172_521_472, "628B"),
        (2.27e12, "2.3T"),
    ],
)
def test_counts_are_short(number: float, short: str) -> None:
    assert short_count(number) == short
