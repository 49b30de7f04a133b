"""Assets, one module per stage; each has a function from the graph to its definitions."""

import dagster as dg

from marin_assets.assets import checkpoints, data, delphi, models
from marin_core.graph import LabGraph


def all_assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    return [*data.assets(graph), *checkpoints.assets(graph), *models.assets(graph), *delphi.assets(graph)]
