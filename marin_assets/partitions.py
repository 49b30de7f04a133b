"""Partitions: one per cell of the ladder, known from the recipe before any has run."""

import dagster as dg

from marin_core.graph import LabGraph


def cell_partitions(graph: LabGraph) -> dg.StaticPartitionsDefinition:
    """Keys like `3e18-d1024`, in order of budget and width."""
    return dg.StaticPartitionsDefinition(list(graph.candidates))
