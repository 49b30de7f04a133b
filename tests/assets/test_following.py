"""What becomes of jobs when the Dagster run that follows them is interrupted."""

from collections.abc import Callable

import dagster as dg
import pytest

from marin_assets.following import on_interrupt


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What is decided inside a real run, in a pod or not, whose run somebody may have cancelled."""

    def decide(*, in_a_pod: bool, cancelled: bool = False, on_cancel: str = "cancel") -> str:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        if in_a_pod:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        decisions = []

        @dg.asset
        def followed(context: dg.AssetExecutionContext) -> None:
            if cancelled:
                context.instance.report_run_canceling(context.run)
            decisions.append(on_interrupt(context, on_cancel))  # type: ignore[arg-type]

        dg.materialize([followed], instance=dg.DagsterInstance.ephemeral())
        return decisions[0]

    return decide


def test_ctrl_c_in_a_terminal_cancels_the_jobs(decide: Callable[..., str]) -> None:
    assert decide(in_a_pod=False) == "cancel"


def test_a_run_worker_that_is_drained_leaves_the_jobs_to_its_next_attempt(decide: Callable[..., str]) -> None:
    assert decide(in_a_pod=True) == "leave"


@pytest.mark.parametrize("in_a_pod", [True, False])
def test_cancelling_the_run_cancels_the_jobs_unless_the_profile_leaves_them(
    decide: Callable[..., str], in_a_pod: bool
) -> None:
    assert decide(in_a_pod=in_a_pod, cancelled=True) == "cancel"
    assert decide(in_a_pod=in_a_pod, cancelled=True, on_cancel="leave") == "leave"
