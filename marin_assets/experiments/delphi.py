"""The Delphi scaling suite at its published size."""

from marin_assets.experiments.prose import prose_beside
from marin_core.recipes import DELPHI
from marin_core.records.experiment import Experiment, SuiteForecast, Verdict

DELPHI_SUITE = Experiment(
    id="delphi",
    title="Delphi: one recipe forecasts the loss of models far above its ladder",
    hypothesis="With one rule for batch, rates and horizon, IsoFLOP curves from 3e18 to 3e20 FLOPs give laws that "
    "forecast the loss of runs at up to three hundred times the compute, before those begin.",
    metric="validation loss of the held-out runs, nats per token",
    forecast=SuiteForecast(),
    owner="team:lab",
    where="the profile delphi",
    issue="https://github.com/marin-community/marin/issues/1337",
    tags=("scaling", "delphi"),
    selection=("delphi/suite", "delphi/heldout", "delphi/verdict", "delphi/figures"),
    applies_to=lambda recipe: recipe.name == DELPHI.name,
    verdict=Verdict.NOT_EVALUATED,
    conclusion="This lab has not trained the suite; its plans are the published ones. See the issue for the results.",
    prose=prose_beside(__file__),
)
