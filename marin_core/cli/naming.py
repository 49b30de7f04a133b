"""What a person calls an artifact, and which one is meant: asset names, partitions, fingerprints."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from marin_core.errors import MarinError
from marin_core.graph import CHECKPOINTS, EVALS, EXPORTS, PUBLISHED_MODELS, LabGraph
from marin_core.profile import Profile, load_profile
from marin_core.store import ArtifactRecord, ArtifactSpec, Store, StoreError


@dataclass(frozen=True)
class Artifacts:
    """The artifacts of a profile and its store, by what people call them."""

    profile: str
    graph: LabGraph
    store: Store

    @classmethod
    def of(cls, profile: str | None) -> "Artifacts":
        """Those of the profile of that name, or of MARIN_PROFILE."""
        loaded: Profile = load_profile(profile)
        return cls(loaded.name, LabGraph.of(loaded), Store(loaded.place.store))

    @cached_property
    def runs(self) -> dict[str, ArtifactSpec]:
        """Every training run by partition: cells, runs of experiments, and held-out runs once it is known which models
        they are."""
        arms = [run for made in self.graph.experiments.values() for runs in made.runs.values() for run in runs]
        try:
            heldout = self.graph.heldout_runs(self.store)
        except StoreError:
            heldout = {}
        found = dict(self.graph.cells)
        for run in [*arms, *heldout.values()]:
            found.setdefault(str(run.partition), run)
        return found

    @cached_property
    def _unpartitioned(self) -> dict[str, ArtifactSpec]:
        return {spec.name: spec for spec in self.graph.unpartitioned()}

    @cached_property
    def _retrospectives(self) -> dict[str, str]:
        """The experiment of each by name; which artifact one is depends on what the store says of the experiment."""
        return {f"experiments/{id_}/retrospective": id_ for id_ in self.graph.experiments}

    @cached_property
    def _evaluations(self) -> list[str]:
        return [f"{EVALS}/{name}" for name in self.graph.evaluations(next(iter(self.graph.cells.values())))]

    @property
    def partitioned(self) -> list[str]:
        """The names that need a partition."""
        return [CHECKPOINTS, EVALS, *self._evaluations, EXPORTS, PUBLISHED_MODELS]

    @property
    def names(self) -> list[str]:
        return sorted({*self._unpartitioned, *self._retrospectives, *self.partitioned})

    def partitions(self, name: str) -> list[str]:
        """The partitions of a name, none of one that has none. Only training runs belong to experiments."""
        if name == CHECKPOINTS:
            return list(self.runs)
        return [*self.graph.cells, *self.graph.heldout_partitions] if name in self.partitioned else []

    def specs(self, name: str, partition: str | None) -> list[ArtifactSpec]:
        """The artifact of a name and a partition; without one, of a name that has partitions, all that are known.

        Raises:
            MarinError: there is no such name, or no such partition.
        """
        if name not in self.names:
            raise self.unknown(name)
        if name not in self.partitioned and partition is not None:
            raise MarinError(f"{name} has no partitions, but {partition!r} was given; leave out --partition")
        if experiment := self._retrospectives.get(name):
            return [self.graph.retrospective(experiment, self.store)]
        if name in self._unpartitioned:
            return [self._unpartitioned[name]]
        if partition is None:
            return [self._of_run(name, self.runs[key]) for key in self.partitions(name) if key in self.runs]
        return [self._of_run(name, self._run(name, partition))]

    def record(self, name: str, partition: str | None, prefix: str | None) -> ArtifactRecord:
        """The committed artifact that is meant: the one of a fingerprint that begins so, else the profile's present
        one, else the newest.

        Raises:
            MarinError: there is none, or several begin so; or the name needs a partition.
        """
        if prefix is not None:
            return self._with_prefix(name, partition, prefix)
        if partition is None and name in self.partitioned:
            raise MarinError(f"{name} has partitions; name one with --partition: {_listed(self.partitions(name))}")
        known = name in self.names and (partition is None or partition in self.runs)
        if known and (found := self.store.record(name, self.specs(name, partition)[0].fingerprint)):
            return found
        if earlier := self.committed(name, partition):
            return earlier[-1]
        spec = self.specs(name, partition)[0]
        of = f" --partition {spec.partition}" if spec.partition else ""
        raise MarinError(
            f"{spec.label} is not in the store {self.store.root}; materialize it, or see marin why {name}{of}"
        )

    def committed(self, name: str, partition: str | None) -> list[ArtifactRecord]:
        """What was ever committed by that name and is there, oldest first."""
        return [record for record in self.store.records(name) if partition in (None, record.partition)]

    def unknown(self, name: str) -> MarinError:
        """Why a name is refused, with those that are like it."""
        near = difflib.get_close_matches(name, self.names, n=4, cutoff=0.5)
        like = [known for known in self.names if name in known]
        shown = list(dict.fromkeys([*near, *like]))[:6] or sorted({known.split("/")[0] + "/…" for known in self.names})
        return MarinError(f"profile {self.profile} has no asset {name!r}; there are {', '.join(shown)}")

    def _run(self, name: str, partition: str) -> ArtifactSpec:
        """
        Raises:
            MarinError: there is no such run, or which model it is stands in a forecast that is not committed.
        """
        if partition in self.graph.heldout_partitions and partition not in self.runs:
            return self.graph.run(partition, self.store)
        known = self.partitions(name)
        if partition not in known:
            raise MarinError(f"{name} has no partition {partition!r}; there are {_listed(known)}")
        return self.runs[partition]

    def _of_run(self, name: str, run: ArtifactSpec) -> ArtifactSpec:
        if name == CHECKPOINTS:
            return run
        if name in self._evaluations:
            return self.graph.evaluations(run)[name.removeprefix(f"{EVALS}/")]
        made = {EVALS: self.graph.evaluated, EXPORTS: self.graph.export, PUBLISHED_MODELS: self.graph.publication}
        return made[name](run)

    def _with_prefix(self, name: str, partition: str | None, prefix: str) -> ArtifactRecord:
        committed = self.committed(name, partition)
        found = [record for record in committed if record.fingerprint.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if not committed and name not in self.names:
            raise self.unknown(name)
        there = _listed([record.fingerprint for record in reversed(found or committed)]) or "none"
        what = "several begin" if found else "none begins"
        raise MarinError(f"of the committed {name}, {what} with {prefix!r}; there are {there}")


def by_prefix(things: Mapping[str, object], prefix: str, what: str) -> str:
    """The one key that begins so.

    Raises:
        MarinError: none does, or several.
    """
    found = [key for key in things if key.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        raise MarinError(f"{len(found)} {what}s begin with {prefix!r}: {_listed(found)}; give more of it")
    raise MarinError(f"no {what} begins with {prefix!r}; `marin records` lists them")


def _listed(names: list[str], most: int = 24) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
