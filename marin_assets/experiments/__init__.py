"""The lab's experiments, one file each. What people write about one stands beside it, in a Markdown file of its name,
which nothing ever overwrites."""

from marin_assets.experiments.laptop_ladder import LAPTOP_LADDER
from marin_core.records.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (LAPTOP_LADDER,)
