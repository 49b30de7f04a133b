"""Averages over documents of validation sets, with standard errors: per set, over all documents, and over the sets.

Documents are the sample: tokens of one document are not independent. The average of a set is a ratio of sums, for
instance nats over bytes, and its standard error the usual one of a ratio, from the documents' residuals (W. G. Cochran,
Sampling Techniques, 3rd edition, 1977, §6.3, without the correction for a finite population); all documents together
are a sample stratified by set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Average:
    """A ratio and its standard error, None where a set of a single document leaves it unknown."""

    value: float
    stderr: float | None

    def scaled(self, factor: float) -> "Average":
        """In another unit."""
        return Average(self.value * factor, None if self.stderr is None else self.stderr * factor)


@dataclass(frozen=True)
class Averages:
    """`sets` by name; `micro` pools all documents; `macro` is the mean of the sets, whatever their sizes."""

    sets: Mapping[str, Average]
    micro: Average
    macro: Average

    @classmethod
    def of(cls, values: Mapping[str, np.ndarray], sizes: Mapping[str, np.ndarray]) -> "Averages":
        """Of each set its documents' values and sizes, (documents,) each: the averages of value per unit of size."""
        sets = {name: _ratio([values[name]], [sizes[name]]) for name in values}
        micro = _ratio(list(values.values()), list(sizes.values()))
        mean = float(np.mean([each.value for each in sets.values()]))
        errors = [each.stderr for each in sets.values()]
        known = [error for error in errors if error is not None]
        stderr = math.hypot(*known) / len(errors) if len(known) == len(errors) else None
        return cls(sets, micro, Average(mean, stderr))

    def named(self) -> dict[str, Average]:
        """All of them: `macro`, `micro`, and each set by its name."""
        return {"macro": self.macro, "micro": self.micro, **self.sets}


def _ratio(values: list[np.ndarray], sizes: list[np.ndarray]) -> Average:
    """Sum of values over sum of sizes, of documents in strata."""
    size = float(sum(stratum.sum() for stratum in sizes))
    ratio = float(sum(stratum.sum() for stratum in values)) / size
    if min(map(len, values)) < 2:
        return Average(ratio, None)
    variance = 0.0
    for value, weight in zip(values, sizes, strict=True):
        residuals = value - ratio * weight
        variance += len(value) * float(np.var(residuals, ddof=1))
    return Average(ratio, math.sqrt(variance) / size)
