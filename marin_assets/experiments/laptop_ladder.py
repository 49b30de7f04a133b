"""The scaling suite of a laptop."""

from marin_assets.experiments.prose import prose_beside
from marin_core.recipes import ScalingRecipe
from marin_core.records.experiment import Experiment, SuiteForecast


def is_laptop_sized(recipe: ScalingRecipe) -> bool:
    """Whether every model of the recipe trains on a laptop."""
    return recipe.max_params < 1e8


LAPTOP_LADDER = Experiment(
    id="laptop_ladder",
    title="Scaling laws hold for models that train on a laptop",
    hypothesis="IsoFLOP curves of models with a few hundred thousand parameters are convex, and a law fitted through "
    "their minima forecasts the loss of a model at four times the largest budget, as it does at full scale.",
    metric="validation loss of the held-out run, nats per token",
    forecast=SuiteForecast(),
    owner="team:lab",
    where="any profile whose models train on a laptop",
    tags=("scaling", "nano"),
    selection=("delphi/suite", "delphi/heldout", "delphi/verdict"),
    applies_to=is_laptop_sized,
    prose=prose_beside(__file__),
)
