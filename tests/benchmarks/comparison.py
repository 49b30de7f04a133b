"""A comparison: methods measured in one run, what was found besides, and the goals. Which there are is in
`comparisons.py`, how they are shown in `report.py`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import Measurement, measure
from preparation import Prepared

# What the project itself depends on is measured in its environment.
IN_OURS = ("peer_tokenizers:gigatoken", "peer_tokenizers:levanter_", "peer_passes:")


@dataclass(frozen=True)
class Goal:
    """A figure and what it should be at least (or, with `at_most`, at most). `two_cores` is the same ratio of wall time
    on two cores, shown beside it."""

    what: str
    found: float
    wanted: float
    two_cores: float | None = None
    at_most: bool = False

    @property
    def reached(self) -> bool:
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted


@dataclass
class Comparison:
    """Measurements by label and cores in the order they were made, what else was found, and goals."""

    title: str
    prepared: Prepared
    log: Callable[[str], None]
    measured: dict[tuple[str, int], Measurement] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    # Further figures by method.
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def ours(
        self,
        label: str,
        stage: str,
        name: str,
        cores: int = 1,
        *,
        options: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        sized_by: str = "normalized",
        **arguments: Any,
    ) -> Measurement:
        """Measure a stage of ours over a set of documents; `options` and `inputs` are those of `ours.Job`."""
        job = {"stage": stage, "store": self.prepared.store, "name": name}
        job |= {"options": options or {}, "inputs": inputs or {}}
        size = self.prepared.set(name).size(sized_by)
        return self._measure(label, "ours:stage", self.prepared.ours, size, cores, job=job, **arguments)

    def peer(
        self, label: str, method: str, name: str, cores: int = 1, *, reads: str = "normalized", **arguments: Any
    ) -> Measurement:
        """Measure another method over the same documents."""
        documents = self.prepared.set(name)
        python = self.prepared.ours if method.startswith(IN_OURS) else self.prepared.peers
        arguments |= {"files": documents.files(reads)}
        return self._measure(label, method, python, documents.size(reads), cores, **arguments)

    def ratio(
        self,
        what: str,
        wanted: float,
        ours: str,
        peer: str,
        rate: Callable[[Measurement], float] | None = None,
    ) -> None:
        """A goal: our MB per CPU second, or another `rate`, over a peer's on one core; beside the former the
        throughput's ratio on two."""
        two = [self.measured.get((label, 2)) for label in (ours, peer)]
        both = two[0].per_second / two[1].per_second if two[0] and two[1] and not rate else None
        rate = rate or (lambda measurement: measurement.per_cpu_second)
        found = rate(self.measured[ours, 1]) / rate(self.measured[peer, 1])
        self.goals.append(Goal(what, found, wanted, both))

    def _measure(
        self, label: str, method: str, python: Path, size: tuple[float, int], cores: int, **arguments: Any
    ) -> Measurement:
        self.log(f"{self.title}: {label} on {cores} core{'s' * (cores > 1)}, {size[0]:.0f} MB")
        self.measured[label, cores] = measure(method, python, size, cores, **arguments)
        return self.measured[label, cores]
