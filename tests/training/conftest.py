"""Shared by the tests of training: a lab with everything that a run reads."""

import pytest

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import Store
from tests.conftest import LabEnvironment
from tests.training.runs import copied_store, finish, run_spec, start_worker


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[LabEnvironment, LabGraph]:
    """A lab whose mixture is materialized, and its graph. Tests must leave it as they find it."""
    lab = LabEnvironment(tmp_path_factory.mktemp("shards"))
    result = lab.materialize("mixture/*")
    assert result.returncode == 0, result.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_STORE", str(lab.store))
        return lab, LabGraph.of(load_profile(str(lab.profile)))


@pytest.fixture(scope="session")
def uninterrupted(shards: tuple[LabEnvironment, LabGraph]) -> Store:
    """A store in which one process has trained `run_spec` without a stop."""
    lab, graph = shards
    store = copied_store(lab, "uninterrupted")
    finish(start_worker(lab, store, run_spec(graph)))
    return store
