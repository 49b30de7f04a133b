"""Shared fixtures: a tiny profile, an environment of its own, and one lab that ran the whole main job."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.emulator import gcs_emulator as gcs_emulator
from tests.emulator import gcs_root as gcs_root

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
TINY_PROFILE = Path(__file__).parent / "profiles" / "tiny.toml"


# What takes minutes to make, and by what the name or text of a file tells that its tests use it. They all run in one of
# the parallel processes, the longest first; the tests of any other file stay together.
SHARED = {
    "finished_lab": "finished_lab: LabEnvironment",
    "shards": "shards: tuple",
    "cluster": "tests/jobs/kubernetes/",
}


class BySharedFixture(LoadScopeScheduling):
    """Divides the tests among the processes of pytest-xdist."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.split("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySharedFixture:
    return BySharedFixture(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = [*SHARED, None]
    groups = {path: group_of(str(path.relative_to(REPOSITORY))) for path in {item.path for item in items}}
    items.sort(key=lambda item: order.index(groups[item.path] if groups[item.path] in SHARED else None))


@functools.cache
def group_of(file: str) -> str:
    """What a file of tests, named from the repository's root, shares with others; else the file."""
    text = f"{file}\n{(REPOSITORY / file).read_text()}"
    return next((name for name, sign in SHARED.items() if sign in text), file)


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
