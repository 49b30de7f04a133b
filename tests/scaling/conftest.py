"""One lab with known laws, built once."""

import pytest

from tests.scaling.known_lab import KnownLab


@pytest.fixture(scope="session")
def known_lab(tmp_path_factory: pytest.TempPathFactory) -> KnownLab:
    """Everything from the ladder to the report. Tests must leave it as they find it."""
    lab = KnownLab(tmp_path_factory.mktemp("known-lab"))
    lab.build_laws()
    lab.build_rest()
    return lab
