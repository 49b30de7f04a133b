"""Shared fixtures: a tiny profile, an environment of its own, and one lab that ran the whole main job."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emulator import gcs_emulator as gcs_emulator
from tests.emulator import gcs_root as gcs_root

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
TINY_PROFILE = Path(__file__).parent / "profiles" / "tiny.toml"


# Fixtures that take minutes, by what their tests share: such tests run in one of the parallel processes, the longest
# groups first. All other tests stay with those of their file.
SHARED = ("finished_lab", "shards", "cluster")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {item: next((name for name in SHARED if name in _fixtures(item)), item.path.name) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: SHARED.index(groups[item]) if groups[item] in SHARED else len(SHARED))


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@dataclass(frozen=True)
class LabEnvironment:
    """A lab of its own: profile, store, instance. Commands run as a user would run them, in the repository."""

    folder: Path
    profile: Path = TINY_PROFILE

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def variables(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MARIN_", "DAGSTER_", "WANDB_"))}
        home = self.folder / "dagster"
        if not home.exists():
            home.mkdir(parents=True)
            (home / "dagster.yaml").write_text((REPOSITORY / "deploy" / "laptop" / "dagster.yaml").read_text())
        return {
            **inherited,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "MARIN_PROFILE": str(self.profile),
            "MARIN_STORE": str(self.store),
            "MARIN_STATE": str(self.folder / "state"),
            "DAGSTER_HOME": str(home),
            # Shapes compile once for all tests, and for all their runs.
            "JAX_COMPILATION_CACHE_DIR": str(REPOSITORY / ".marin" / "cache" / "jax"),
        }

    def run(self, *command: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=REPOSITORY, env=self.variables, capture_output=True, text=True, timeout=timeout, check=False
        )

    def bash(self, line: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return self.run("bash", "-c", line, timeout=timeout)

    def materialize(self, selection: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("dagster", "asset", "materialize", "--select", selection, *options)


@pytest.fixture
def lab_environment(tmp_path: Path) -> LabEnvironment:
    """An empty lab."""
    return LabEnvironment(tmp_path)


@pytest.fixture(scope="session")
def finished_lab(tmp_path_factory: pytest.TempPathFactory) -> LabEnvironment:
    """A lab in which the user's literal command has run once. Tests must leave it as they find it."""
    lab = LabEnvironment(tmp_path_factory.mktemp("finished-lab"))
    result = lab.bash("dagster asset materialize --select delphi/*")
    assert result.returncode == 0, result.stdout + result.stderr
    (lab.folder / "first-run.log").write_text(result.stdout + result.stderr)
    return lab


@pytest.fixture
def in_lab(lab_environment: LabEnvironment, monkeypatch: pytest.MonkeyPatch) -> LabEnvironment:
    """An empty lab that this very process works in."""
    for name, value in lab_environment.variables.items():
        if name.startswith(("MARIN_", "DAGSTER_")):
            monkeypatch.setenv(name, value)
    return lab_environment
