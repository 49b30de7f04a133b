"""The lab's experiments, one file each. What people write about one stands beside it, in a Markdown file of its name,
which nothing ever overwrites."""

from marin_assets.experiments.adamh_against_adamw import ADAMH_AGAINST_ADAMW
from marin_assets.experiments.delphi import DELPHI_SUITE
from marin_assets.experiments.float16_throughout import FLOAT16_THROUGHOUT
from marin_assets.experiments.laptop_ladder import LAPTOP_LADDER
from marin_core.records.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (DELPHI_SUITE, LAPTOP_LADDER, ADAMH_AGAINST_ADAMW, FLOAT16_THROUGHOUT)
