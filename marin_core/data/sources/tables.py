"""Checks a table of a TOML file against a frozen dataclass and builds it. What the tables mean is not here."""

import dataclasses
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def build_record[Record](record: type[Record], table: Mapping[str, Any]) -> Record:
    """The dataclass with the table's values; lists become tuples, integers floats where floats are wanted.

    Raises:
        ValueError: an unknown or missing field, or a value that the field does not allow.
    """
    check_names(table, field_names(record))
    hints = get_type_hints(record)
    values = {name: _checked(name, value, hints[name]) for name, value in table.items()}
    missing = [f.name for f in _fields(record) if f.name not in values and not _has_default(f)]
    if missing:
        raise ValueError(f"field {missing[0]!r} is missing; give {_wanted(hints[missing[0]])}")
    return record(**values)


def field_names(record: type) -> list[str]:
    return [f.name for f in _fields(record)]


def check_names(table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Raises ValueError for the first name that is not among those allowed."""
    allowed = list(allowed)
    if unknown := [name for name in table if name not in allowed]:
        raise ValueError(f"unknown field {unknown[0]!r}; there are {', '.join(allowed)}")


def _checked(name: str, value: Any, hint: Any) -> Any:
    for option in _options(hint):
        if get_origin(option) is tuple:
            if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
                return tuple(value)
        elif get_origin(option) is Literal:
            if value in get_args(option):
                return value
        elif option is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        elif isinstance(value, option) and (option is bool or not isinstance(value, bool)):
            return value
    raise ValueError(f"field {name!r} is {value!r}; give {_wanted(hint)}")


def _wanted(hint: Any) -> str:
    words = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            words.append(f"one of {', '.join(get_args(option))}")
        elif get_origin(option) is tuple:
            words.append("a list of strings")
        elif option is not types.NoneType:
            words.append({str: "a string", int: "an integer", float: "a number", bool: "true or false"}[option])
    return " or ".join(words)


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fields(record: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(record)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
