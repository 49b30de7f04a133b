"""Checks a table of a TOML file against a frozen dataclass and builds it. What the tables mean is not here."""

import dataclasses
import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from marin_core.errors import MarinError

_WORDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


class FieldError(ValueError):
    """`path` leads from the table to the field that is wrong; empty, to the table itself."""

    def __init__(self, message: str, *path: str | int):
        super().__init__(message)
        self.path = path


@contextmanager
def reading(*path: str | int) -> Iterator[None]:
    """What is wrong inside is wrong with the field at `path` of a table, or with a field below it.

    Raises:
        FieldError: for any FieldError, or MarinError, that the block raises.
    """
    try:
        yield
    except (FieldError, MarinError) as error:
        raise FieldError(str(error), *path, *getattr(error, "path", ())) from None


def build_record[Record](record: type[Record], table: Mapping[str, Any]) -> Record:
    """The dataclass with the table's values, as `check_fields` returns them.

    Raises:
        FieldError: an unknown or missing field, or a value that the field does not allow.
    """
    values = check_fields(record, table)
    hints = get_type_hints(record)
    missing = [f.name for f in _fields(record) if f.name not in values and not _has_default(f)]
    if missing:
        raise FieldError(f"field {missing[0]!r} is missing; give {_wanted(hints[missing[0]])}")
    return record(**values)


def check_fields(record: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """The table's values as the dataclass has them: lists become tuples, integers floats where floats are wanted.

    Raises:
        FieldError: an unknown field, or a value that the field does not allow.
    """
    check_names(table, field_names(record))
    hints = get_type_hints(record)
    return {name: _checked(name, value, hints[name]) for name, value in table.items()}


def field_names(record: type) -> list[str]:
    return [f.name for f in _fields(record)]


def check_names(table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Raises FieldError for the first name that is not among those allowed."""
    allowed = list(allowed)
    if unknown := [name for name in table if name not in allowed]:
        near = difflib.get_close_matches(unknown[0], allowed, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise FieldError(f"unknown field {unknown[0]!r}; there are {', '.join(allowed)}{meant}", unknown[0])


def _checked(name: str, value: Any, hint: Any) -> Any:
    for option in _options(hint):
        if get_origin(option) is Mapping and isinstance(value, Mapping):
            with reading(name):
                return {key: _checked(key, item, get_args(option)[1]) for key, item in value.items()}
        if _fits(value, option):
            return _converted(value, option)
    raise FieldError(f"field {name!r} is {value!r}; give {_wanted(hint)}", name)


def _fits(value: Any, option: Any) -> bool:
    if get_origin(option) is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, get_args(option)[0]) for item in value)
    if get_origin(option) is Mapping:
        return False
    if get_origin(option) is Literal:
        return value in get_args(option)
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, option) and (option is bool or not isinstance(value, bool))


def _converted(value: Any, option: Any) -> Any:
    if get_origin(option) is tuple:
        return tuple(_converted(item, get_args(option)[0]) for item in value)
    return float(value) if option is float else value


def _wanted(hint: Any) -> str:
    words = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            words.append(f"one of {', '.join(get_args(option))}")
        elif get_origin(option) is tuple:
            words.append(f"a list of {_plural(get_args(option)[0])}")
        elif get_origin(option) is Mapping:
            words.append(f"a table of {_plural(get_args(option)[1])}")
        elif option is not types.NoneType:
            words.append(_WORDS.get(option, "a table"))
    return " or ".join(words)


def _plural(item: Any) -> str:
    return f"{_WORDS.get(item, 'a table').split()[-1]}s"


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fields(record: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(record)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
