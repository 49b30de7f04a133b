"""The scaling suite of a laptop."""

from marin_assets.experiments.ladders import LAPTOP, is_laptop_sized
from marin_assets.experiments.prose import prose_beside
from marin_core.records.experiment import Experiment, SuiteForecast, Verdict

LAPTOP_LADDER = Experiment(
    id="laptop_ladder",
    title="Scaling laws hold for models that train on a laptop",
    hypothesis="IsoFLOP curves of models with a few hundred thousand parameters are convex, and a law fitted through "
    "their minima forecasts the loss of a model at four times the largest budget, as it does at full scale.",
    metric="validation loss of the held-out run, nats per token",
    forecast=SuiteForecast(),
    owner="team:lab",
    where=LAPTOP,
    tags=("scaling", "nano"),
    selection=("delphi/suite", "delphi/heldout", "delphi/verdict", "delphi/figures"),
    applies_to=is_laptop_sized,
    verdict=Verdict.WORKED,
    conclusion="On the laptop profile the forecast for 3.2e12 FLOPs was 4.097 nats per token (95 % interval 3.975 to "
    "4.441), registered before the run, which ended at 4.096. One machine, one seed, and the interval is wide.",
    prose=prose_beside(__file__),
)
