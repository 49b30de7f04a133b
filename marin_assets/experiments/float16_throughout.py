"""Training in float16, weights and optimizer included, without loss scaling. It did not work, and is kept."""

import dataclasses
from collections.abc import Mapping, Sequence

from marin_assets.experiments.ladders import LAPTOP, is_laptop_sized, middle_cells
from marin_assets.experiments.prose import prose_beside
from marin_core.recipes import TrainPlan
from marin_core.records.experiment import DifferenceForecast, Experiment, Verdict

PRECISIONS = {
    # Weights, computation, and with the weights the optimizer's moments.
    "float16": "f16",
    # Delphi's policy with the other 16-bit type: computation only.
    "float16_compute": "p=f32,c=f16",
}


def arms(ladder: Sequence[TrainPlan]) -> Mapping[str, Sequence[TrainPlan]]:
    """The ladder's own runs, in float32, and the same in float16."""
    plans = middle_cells(ladder, budgets=2)
    others = {
        arm: [dataclasses.replace(plan, precision=policy) for plan in plans] for arm, policy in PRECISIONS.items()
    }
    return {"float32": plans, **others}


FLOAT16_THROUGHOUT = Experiment(
    id="float16_throughout",
    title="Nano models train in float16 throughout",
    hypothesis="Models this small need no loss scaling: AdamH holds the norms of the weights and gradients are "
    "clipped, so weights, moments and computation in float16 halve the memory and cost hardly any loss.",
    metric="validation loss after the last step, nats per token",
    forecast=DifferenceForecast(first="float16", second="float32", low=-0.02, high=0.05),
    owner="team:lab",
    where=LAPTOP,
    tags=("precision", "nano"),
    arms=arms,
    applies_to=is_laptop_sized,
    verdict=Verdict.DID_NOT_WORK,
    conclusion="On the laptop profile both runs diverged at the first update: Adam's epsilon is 0 in float16, so that "
    "weights without a gradient are moved by 0/0. With the computation alone in float16 both ended near float32.",
    prose=prose_beside(__file__),
)
