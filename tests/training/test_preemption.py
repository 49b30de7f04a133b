"""SIGTERM during a run: it saves at the end of the step, and what comes after is as if nothing had happened."""

import re
import signal
from pathlib import Path

import pytest

from marin_core.graph import LabGraph
from marin_core.jobs.spec import EXIT_TERMINATED
from marin_core.store import Store
from tests.conftest import LabEnvironment
from tests.training.runs import copied_store, curve, finish, run_spec, signal_at_step, start_worker

pytestmark = pytest.mark.slow


def test_a_preempted_run_loses_no_completed_step_and_no_bit(
    shards: tuple[LabEnvironment, LabGraph], uninterrupted: Store
) -> None:
    lab, graph = shards
    spec = run_spec(graph)
    store = copied_store(lab, "preempted")
    # No checkpoint is due before the end.
    worker = start_worker(lab, store, spec, every_steps=10**6)
    told = signal_at_step(worker, 20, signal.SIGTERM)
    assert worker.returncode == EXIT_TERMINATED
    assert 20 <= told <= 22
    assert [path.name for path in (Path(store.url(spec)) / "checkpoints").iterdir()] == [f"step-{told - 1}"]
    assert store.record(spec.name, spec.fingerprint) is None
    messages = finish(start_worker(lab, store, spec, every_steps=10**6))
    assert any(re.search(f"resuming .* after step {told} of ", message) for message in messages)
    # The lease was given back.
    assert not any("waiting for it" in message for message in messages)
    assert curve(store, spec) == curve(uninterrupted, spec)
    assert store.artifact(spec).record.summary["attempts"] == {"preempted": 1, "peer_lost": 0, "failed": 0, "died": 0}
    assert store.artifact(spec).record.content == uninterrupted.artifact(spec).record.content
