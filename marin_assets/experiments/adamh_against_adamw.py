"""AdamH against AdamW, on cells of the ladder."""

import dataclasses
from collections.abc import Mapping, Sequence

from marin_assets.experiments.ladders import LAPTOP, is_laptop_sized, middle_cells
from marin_assets.experiments.prose import prose_beside
from marin_core.recipes import AdamHParams, AdamWParams, TrainPlan
from marin_core.records.experiment import DifferenceForecast, Experiment, Verdict

WEIGHT_DECAY = 0.1
# Shares of the rate at which AdamH's run of the same cell drives what it leaves to Adam. That rate follows the recipe's
# own rule for batch and horizon, and is far too high for the matrices.
RATES = {"adamw_low": 0.01, "adamw": 0.03, "adamw_high": 0.1}


def arms(ladder: Sequence[TrainPlan]) -> Mapping[str, Sequence[TrainPlan]]:
    """The ladder's own runs, and the same with AdamW at each of the rates."""
    plans = middle_cells(ladder, budgets=3)
    return {"adamh": plans} | {arm: [with_adamw(plan, share) for plan in plans] for arm, share in RATES.items()}


def with_adamw(plan: TrainPlan, rate_share: float) -> TrainPlan:
    """The plan with AdamW at a share of AdamH's Adam rate; whatever else both have, the same."""
    settings = plan.optimizer
    assert isinstance(settings, AdamHParams)
    shared = {field.name: getattr(settings, field.name) for field in dataclasses.fields(AdamHParams)}
    shared.pop("adam_lr")
    shared["learning_rate"] = rate_share * settings.adam_lr
    return dataclasses.replace(plan, optimizer=AdamWParams(**shared, weight_decay=WEIGHT_DECAY))


ADAMH_AGAINST_ADAMW = Experiment(
    id="adamh_against_adamw",
    title="AdamH against AdamW on nano models",
    hypothesis="AdamH ends lower than AdamW at the best of three rates: it holds the norm of every matrix, so that its "
    "rate means the same at every width, and it drives the embedding at a rate of its own.",
    metric="validation loss after the last step, nats per token",
    forecast=DifferenceForecast(first="adamh", second=tuple(RATES), low=-0.2, high=0.0),
    owner="team:lab",
    where=LAPTOP,
    tags=("optimizer", "nano"),
    arms=arms,
    applies_to=is_laptop_sized,
    verdict=Verdict.PROMISING,
    conclusion="On the laptop profile AdamH ended 0.28 nats per token below the best of three AdamW rates, more than "
    "the 0 to 0.2 we forecast; that rate was the highest tried, so AdamW at its best is still to be seen. One seed.",
    prose=prose_beside(__file__),
)
