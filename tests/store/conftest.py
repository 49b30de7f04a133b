"""The places that keep the store's whole contract."""

from pathlib import Path

import pytest


@pytest.fixture(params=["local", "gcs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Root of an empty store, on this disk and on Google Cloud Storage."""
    return request.getfixturevalue("gcs_root") if request.param == "gcs" else str(tmp_path / "store")
