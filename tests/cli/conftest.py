"""A small lab with everything committed, made once."""

from pathlib import Path

import pytest

from tests.cli.small_lab import SmallLab


@pytest.fixture(scope="session")
def whole_lab(tmp_path_factory: pytest.TempPathFactory) -> SmallLab:
    """The suite with all that it is made of. Tests must leave it as they find it."""
    lab = SmallLab.make(tmp_path_factory.mktemp("small-lab"))
    lab.commit(lab.graph.verdict, {"actual_loss": 3.25, "inside_interval": True})
    return lab


@pytest.fixture
def lab(whole_lab: SmallLab, tmp_path: Path) -> SmallLab:
    """A copy that a test may change."""
    return whole_lab.copy(tmp_path)


@pytest.fixture
def empty_lab(tmp_path: Path) -> SmallLab:
    """A profile, and nothing in the store."""
    return SmallLab.make(tmp_path)
