"""A lab whose artifacts are committed through the store, but hold nothing: what the commands about records say of it
follows from its profile. No data is read and nothing is trained."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from marin_core.cli import cli
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
from tests.conftest import TINY_PROFILE


@dataclass(frozen=True)
class SmallLab:
    """Its profile, `profile.toml`, begins as the tests' tiny one. Its store is at `root`, by default in its folder."""

    folder: Path
    root: str | None = None

    @classmethod
    def make(cls, folder: Path, root: str | None = None) -> "SmallLab":
        (folder / "profile.toml").write_text(TINY_PROFILE.read_text())
        return cls(folder, root)

    def copy(self, folder: Path) -> "SmallLab":
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return SmallLab(folder)

    @property
    def profile(self) -> Path:
        return self.folder / "profile.toml"

    @property
    def store(self) -> Store:
        return Store(self.root or str(self.folder / "store"))

    @property
    def graph(self) -> LabGraph:
        """As the profile says now."""
        return LabGraph.of(load_profile(str(self.profile)))

    def edit(self, old: str, new: str) -> None:
        """Change the profile as a person would."""
        assert old in self.profile.read_text()
        self.profile.write_text(self.profile.read_text().replace(old, new))

    def commit(
        self,
        spec: ArtifactSpec,
        summary: dict[str, Any] | None = None,
        text: str = "",
        dagster_run: str | None = None,
    ) -> ArtifactRecord:
        """Commit an artifact, and first what it is made of. `text` is its content."""
        store = self.store
        for upstream in spec.inputs.values():
            if store.record(upstream.name, upstream.fingerprint) is None:
                self.commit(upstream)
        with store.writer(spec) as writer:
            if writer.committed:
                return writer.committed
            with writer.open("content.txt") as file:
                file.write(f"{spec.label} {text}".encode())
            return writer.commit(summary or {}, dagster_run=dagster_run)

    def rebuild(self, spec: ArtifactSpec, text: str) -> ArtifactRecord:
        """Delete an artifact and build it again with other content."""
        self.delete(spec)
        return self.commit(spec, text=text)

    def delete(self, spec: ArtifactSpec) -> None:
        self.store.objects.delete(f"{spec.name}/{spec.fingerprint}")

    def marin(self, *arguments: str) -> str:
        """What a command prints; whatever it raises is raised."""
        environment = {"MARIN_PROFILE": str(self.profile), "MARIN_STORE": self.store.root}
        result = CliRunner().invoke(cli, arguments, env=environment, standalone_mode=False)
        if result.exception:
            raise result.exception
        return result.output

    def json(self, *arguments: str) -> Any:
        return json.loads(self.marin(*arguments, "--json"))


def outcome(run: str, asset: str, partition: str | None = None, **fields: Any) -> Outcome:
    """An outcome of a run that failed with a bug, unless `fields` say otherwise."""
    failed = {"status": "failed", "exit_class": ExitClass.BUG, "reason": "a bug", "ended": "2026-11-02T08:00:00+00:00"}
    return Outcome(**{"dagster_run": run, "asset": asset, "partition": partition, "began": None, **failed, **fields})
