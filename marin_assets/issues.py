"""Which issues an artifact belongs to: those of the experiments that it is part of."""

import dagster as dg

from marin_core.graph import LabGraph
from marin_core.graph.experiments import ExperimentArtifacts
from marin_core.store import ArtifactRecord


def issue_metadata(graph: LabGraph, record: ArtifactRecord) -> dict[str, dg.MetadataValue]:
    """A link to the issue of every experiment that an artifact is part of: its own report, what it compares, a run."""
    return {
        f"issue_{id_}": dg.MetadataValue.url(made.experiment.issue)
        for id_, made in graph.experiments.items()
        if made.experiment.issue is not None and _is_part(record, made)
    }


def _is_part(record: ArtifactRecord, made: ExperimentArtifacts) -> bool:
    if record.name.startswith(f"experiments/{made.experiment.id}/"):
        return True
    # Where the experiment is another lab's, the suite of this one is no part of it.
    of_suite = made.result is not None and record.name in made.experiment.selection
    return of_suite or any(record.fingerprint == run.fingerprint for runs in made.runs.values() for run in runs)
