"""From a task and its settings to a spec."""

from typing import Any

from marin_core.store import ArtifactSpec
from marin_core.tasks import TASKS


def artifact(
    name: str,
    task: str,
    config: dict[str, Any],
    inputs: dict[str, ArtifactSpec],
    partition: str | None = None,
    context: dict[str, Any] | None = None,
) -> ArtifactSpec:
    """The spec of an artifact that `task` makes, with the task's code version in its identity."""
    return ArtifactSpec(name, task, TASKS[task].code_version, config, inputs, partition, context or {})
