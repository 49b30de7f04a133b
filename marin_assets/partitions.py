"""Partitions: one per training run, known from the profile before any has run."""

import dagster as dg

from marin_core.graph import LabGraph


def run_partitions(graph: LabGraph) -> dg.StaticPartitionsDefinition:
    """Keys like `3e18-d1024`, the cells of the ladder in order of budget and width; then the held-out runs, like
    `1e21-optimal`."""
    return dg.StaticPartitionsDefinition([*graph.candidates, *graph.heldout_partitions])
