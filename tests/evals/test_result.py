"""What an evaluation may say, and that it says the same when it is read back."""

import json
import math

import pytest

from marin_core.errors import MarinError
from marin_core.evals.result import EvalResult, Metric, ModelIdentity, memory_ran_out

MODEL = ModelIdentity("f00", "c0ffee", "1e11-d0016", "nano", "nano_v1", 10_000, 200_000, 99)


def test_every_kind_of_result_reads_back_equal() -> None:
    metrics = {"acc": Metric(0.5, 0.1, "accuracy", True), "loss": Metric(2.0, None, "nats", False)}
    results = [
        EvalResult("succeeded", "task", "2.0", MODEL, 12, metrics, ("source",), {"sets": {"a": 1}}),
        EvalResult("failed", "task", "2.0", MODEL, error="no such task"),
        EvalResult("infra_failed", "task", "2.0", MODEL, error="the endpoint did not answer", contamination={"a": {}}),
    ]
    for result in results:
        assert EvalResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


def test_only_trouble_of_the_place_is_worth_another_try() -> None:
    failed = EvalResult("failed", "task", "1", MODEL, error="no such task")
    infra = EvalResult("infra_failed", "task", "1", MODEL, error="the endpoint did not answer")
    assert infra.summary["retryable"] and "retryable" not in failed.summary
    assert memory_ran_out(MemoryError("Unable to allocate 9 TiB"))
    assert memory_ran_out(ValueError("RESOURCE_EXHAUSTED")) is None


def test_a_device_without_memory_is_trouble_of_the_place() -> None:
    import jax
    import jax.numpy as jnp

    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jnp.zeros(1 << 46, jnp.float32).block_until_ready()
    assert "out of memory" in str(memory_ran_out(caught.value))


def test_numbers_that_are_none_are_no_results() -> None:
    for value, stderr in ((math.nan, 0.1), (math.inf, None), (1.0, math.nan)):
        with pytest.raises(MarinError, match="only finite numbers"):
            Metric(value, stderr, "nats", False)
    with pytest.raises(MarinError, match="without a metric"):
        EvalResult("succeeded", "task", "1", MODEL)
    with pytest.raises(MarinError, match="with error None"):
        EvalResult("failed", "task", "1", MODEL)
