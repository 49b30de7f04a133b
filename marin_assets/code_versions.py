"""What the partitions of an asset have in common, and so what Dagster calls the asset's code version.

The code version of an unpartitioned asset is its artifact's fingerprint, so that "stale" in the web UI means what
`marin plan` says. That of a partitioned one is the fingerprint of what would be made of `run_for_all_partitions`.
Another budget in the ladder changes it for none; a constant of the recipe changes it for all, also where the change
happens to leave the plan of some partition as it was: Dagster knows one code version per asset, not per partition. Nor
can it know that a held-out run is another model now, before the forecast that says which; and what becomes of the store
behind its back, or an evaluation that is to be tried again, it sees when the asset is next materialized.
"""

from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.graph.specs import artifact
from marin_core.store import ArtifactSpec


def run_for_all_partitions(graph: LabGraph) -> ArtifactSpec:
    """What every training run of the ladder, and every held-out one, has in common: all that decides what it is but its
    partition's key. It stands for each of them, and is never built."""
    scale = graph.scale
    common = {"recipe": scale.recipe.to_json(), "eval_sequences": scale.eval_sequences, "seed": scale.seed}
    return artifact(CHECKPOINTS, "train", common, {"mixture": graph.mixture})


def run_of_any_plan(graph: LabGraph) -> ArtifactSpec:
    """What any training run on the profile's mixture has in common with every other."""
    return artifact(CHECKPOINTS, "train", {}, {"mixture": graph.mixture})
