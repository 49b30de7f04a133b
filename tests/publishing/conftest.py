"""A hub to publish to, and a lab that has something to publish."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_core.store import Store
from tests.publishing.lab import PublishingLab
from tests.publishing.writable_hub import WRITER, WritableHub, running


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WritableHub]:
    with running(WritableHub()) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", WRITER)
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        # The token of whoever runs the tests is none of their business.
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no token"))
        yield server


@pytest.fixture
def lab(tmp_path: Path) -> PublishingLab:
    (tmp_path / "scratch").mkdir()
    return PublishingLab(Store(str(tmp_path / "store")), tmp_path / "scratch")
