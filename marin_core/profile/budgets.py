"""Budgets as keys of a TOML table, which are texts: `"1.8e19" = …`."""

import math
import re
from collections.abc import Mapping
from typing import Any

from marin_core.data.sources.tables import FieldError

# Behind the point of a budget that is not in quotes.
_FRACTION = re.compile(r"[\d_]+[eE]\d+")


def budget_of_key(key: str, value: Any) -> float:
    """The budget in FLOPs that a key of a table says; `value` is what stands there.

    Raises:
        FieldError: it says none, or TOML took the point of a budget for one between two keys.
    """
    if isinstance(value, Mapping) and (rest := next(filter(_FRACTION.fullmatch, value), None)):
        meant = f"{key}.{rest}"
        raise FieldError(f'to TOML {meant} is key {rest!r} in a table {key!r}; put the budget in quotes, "{meant}"')
    try:
        flops = float(key)
    except ValueError:
        flops = math.nan
    if not (math.isfinite(flops) and flops > 0):
        raise FieldError(f"the budget is {key!r}; give a positive number of FLOPs, like 1e21")
    return flops
