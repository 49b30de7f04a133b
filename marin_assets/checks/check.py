"""What a check is: a name, what holds when it passes, and how to look."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from marin_assets.keys import asset_key
from marin_assets.lab import Lab
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec


@dataclass(frozen=True)
class Finding:
    """Whether it holds, the numbers that were looked at, and if it does not, in one line what is wrong."""

    passed: bool
    numbers: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @classmethod
    def of(cls, problems: list[str], numbers: Mapping[str, Any]) -> "Finding":
        """It holds if nothing is wrong."""
        return cls(not problems, numbers, "; ".join(problems) or None)


@dataclass(frozen=True)
class Check:
    """`look` is given the lab and the committed artifact's spec. One that is `blocking` keeps what is made of the asset
    from being built in the same run."""

    name: str
    description: str
    look: Callable[[Lab, ArtifactSpec], Finding]
    blocking: bool = False

    def spec(self, asset: str) -> dg.AssetCheckSpec:
        """Its definition on an asset."""
        return dg.AssetCheckSpec(
            self.name, asset=asset_key(asset), description=self.description, blocking=self.blocking
        )

    def evaluation(self, lab: Lab, artifact: ArtifactSpec) -> dg.AssetCheckEvaluation:
        """Look, for an event of a step that fails and so has no result."""
        found = self.result(lab, artifact)
        return dg.AssetCheckEvaluation(
            asset_key=asset_key(artifact.name),
            check_name=self.name,
            passed=found.passed,
            metadata=found.metadata,
            severity=found.severity,
            description=found.description,
        )

    def result(self, lab: Lab, artifact: ArtifactSpec) -> dg.AssetCheckResult:
        """Look. What cannot be read does not pass."""
        try:
            found = self.look(lab, artifact)
        except MarinError as error:
            found = Finding(False, problem=str(error))
        return dg.AssetCheckResult(
            check_name=self.name,
            passed=found.passed,
            severity=dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN,
            # The definition of a check knows no partitions.
            metadata={**found.numbers, **({"partition": artifact.partition} if artifact.partition else {})},
            description=found.problem,
        )
