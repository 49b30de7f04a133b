"""Averages of validation sets, and standard errors held against resampling the documents."""

import numpy as np
import pytest

from marin_core.evals.averages import Averages


def sample(seed: int, sizes: dict[str, int]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Documents of very different lengths, whose rates differ by set."""
    random = np.random.default_rng(seed)
    lengths = {name: random.lognormal(6, 1, count) for name, count in sizes.items()}
    rates = {name: 2 + n + 0.3 * random.standard_normal(sizes[name]) for n, name in enumerate(sizes)}
    return {name: lengths[name] * rates[name] for name in sizes}, lengths


def test_micro_pools_documents_and_macro_averages_sets() -> None:
    values = {"a": np.asarray([10.0, 30.0]), "b": np.asarray([1.0])}
    sizes = {"a": np.asarray([10.0, 10.0]), "b": np.asarray([1.0])}
    found = Averages.of(values, sizes)
    assert found.sets["a"].value == 2.0
    assert found.sets["b"].value == 1.0
    assert found.macro.value == 1.5
    assert found.micro.value == pytest.approx(41 / 21)
    # Nobody knows how much documents of `b` differ.
    assert found.sets["b"].stderr is found.macro.stderr is found.micro.stderr is None
    assert found.sets["a"].stderr == pytest.approx(1.0)


def test_standard_errors_are_those_that_resampled_documents_show() -> None:
    values, sizes = sample(0, {"a": 60, "b": 90})
    found = Averages.of(values, sizes)
    random = np.random.default_rng(1)
    resampled = []
    for _ in range(2000):
        chosen = {name: random.integers(0, len(values[name]), len(values[name])) for name in values}
        again = Averages.of(
            {name: values[name][at] for name, at in chosen.items()},
            {name: sizes[name][at] for name, at in chosen.items()},
        )
        resampled.append([average.value for average in again.named().values()])
    for (name, average), spread in zip(found.named().items(), np.std(resampled, axis=0), strict=True):
        assert average.stderr == pytest.approx(spread, rel=0.12), name
