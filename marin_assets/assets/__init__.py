"""Assets, one module per stage; each has a function from the graph to its definitions."""

import dagster as dg

from marin_assets.assets import checkpoints, data, delphi, experiments, models, records, site
from marin_core.graph import LabGraph


def all_assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    of_models = [*checkpoints.assets(graph), *models.assets(graph), *delphi.assets(graph)]
    return [*data.assets(graph), *of_models, *experiments.assets(graph), *records.assets(graph), *site.assets(graph)]
