"""What is committed, what is missing, and why: the graph held against the store, before anything runs."""

from marin_core.status.explanation import Explanation, Rebuilt, explain
from marin_core.status.reader import ArtifactStatus, State, StatusReader, graph_status, is_partition, walk

__all__ = [
    "ArtifactStatus",
    "Explanation",
    "Rebuilt",
    "State",
    "StatusReader",
    "explain",
    "graph_status",
    "is_partition",
    "walk",
]
