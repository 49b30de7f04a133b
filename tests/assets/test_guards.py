"""Nothing trains unless somebody named what to train."""

import dagster as dg

from marin_assets.definitions import build_definitions
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from tests.conftest import LabEnvironment


def failures(result: dg.ExecuteInProcessResult) -> list[str]:
    events = [event for event in result.all_events if event.is_step_failure]
    return [
        str(e.step_failure_data.user_failure_data.description) for e in events if e.step_failure_data.user_failure_data
    ]


def test_a_run_without_asset_selection_does_not_train(in_lab: LabEnvironment) -> None:
    """Dagster takes an empty selection for everything; such a run reaches the suite and stops there."""
    definitions = build_definitions()
    job = definitions.resolve_implicit_global_asset_job_def()
    instance = dg.DagsterInstance.ephemeral()
    key = next(iter(LabGraph.of(load_profile()).cells))
    result = job.execute_in_process(instance=instance, partition_key=key, raise_on_error=False)
    assert not result.success
    assert any("trains models, and this run names no assets" in failure for failure in failures(result))
    assert not list((in_lab.store / "checkpoints").rglob("artifact.json"))
