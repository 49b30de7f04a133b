"""The columns of the plot-ready tables as data: name, type, and what `marin_core.columns` says that they mean."""

from typing import Any

import polars as pl

from marin_core.columns import Column, column_of
from marin_core.scaling.errors import ScalingError

_TYPES = {pl.String: "string", pl.Float64: "float64", pl.Int64: "int64", pl.Boolean: "bool"}


def describe(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Name, type, unit and meaning of each column.

    Raises:
        ScalingError: a column is described nowhere.
    """
    return [
        {"name": name, "type": _type(dtype), "unit": about.unit, "meaning": about.meaning}
        for name, dtype in table.schema.items()
        for about in [_column(name)]
    ]


def _column(name: str) -> Column:
    if column := column_of(name):
        return column
    raise ScalingError(f"column {name!r} is not described; add it to marin_core/columns.py")


def _type(dtype: pl.DataType) -> str:
    return _TYPES.get(type(dtype)) or _TYPES.get(dtype, str(dtype).lower())  # type: ignore[call-overload]
