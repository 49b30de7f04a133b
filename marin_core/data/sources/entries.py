"""One source entry, a table of a TOML file, to a `Source`.

An entry has the fields of its origin side by side with the source's own, and the tables `layout` and `curation`. Where
entries lie is `catalogue.py`; what a source is, `declaration.py` says.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal

from marin_core.data.sources.declaration import (
    INSTALLED_LAYOUT,
    Curation,
    FolderOrigin,
    HubOrigin,
    InstalledOrigin,
    Layout,
    Origin,
    Source,
    UrlOrigin,
)
from marin_core.data.sources.tables import FieldError, build_record, check_names, field_names
from marin_core.errors import MarinError

Entry = Mapping[str, Any]

_NAME = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")
_URL = re.compile(r"(https?|gs|s3|file)://.+")
# Each origin is known by fields that no other has.
_ORIGINS: dict[type[Origin], tuple[str, ...]] = {
    InstalledOrigin: ("packages", "content"),
    HubOrigin: ("dataset",),
    UrlOrigin: ("urls", "listings"),
    FolderOrigin: ("path",),
}
ORIGIN_MARKS = tuple(marks[0] for marks in _ORIGINS.values())
_TABLES = {"layout": Layout, "curation": Curation}


@dataclasses.dataclass(frozen=True)
class _Described:
    """The fields of a source that are neither its name nor a table."""

    licence: str
    role: Literal["train", "evaluation"] = "train"
    rough_tokens: float | None = None
    homepage: str | None = None


class EntryError(MarinError):
    """A source's entry is wrong. `path` leads from the entry to the field; empty, to the entry itself."""

    def __init__(self, name: str, error: FieldError):
        super().__init__(f"source {name!r}: {error}")
        self.path = error.path


_OWN_FIELDS = (*field_names(_Described), *_TABLES)


def read_entry(name: str, entry: Entry) -> Source:
    """The source that a complete entry declares.

    Raises:
        MarinError: the entry is wrong; the message names the field, the value and what is allowed.
    """
    if not _NAME.fullmatch(name):
        raise MarinError(f"source name {name!r} is not valid; use letters, digits and _, and / between parts")
    try:
        kind = _origin_kind(entry)
        check_names(entry, [*field_names(kind), *_OWN_FIELDS])
        if kind is InstalledOrigin and "layout" in entry:
            raise FieldError(
                "field 'layout' is given; installed text has one of its own, leave the field out", "layout"
            )
        origin = build_record(kind, {key: value for key, value in entry.items() if key in field_names(kind)})
        described = build_record(_Described, {k: v for k, v in entry.items() if k in field_names(_Described)})
        layout = INSTALLED_LAYOUT if kind is InstalledOrigin else _table(entry, "layout")
        source = Source(name, origin, layout=layout, curation=_table(entry, "curation"), **vars(described))
        _check_values(source)
    except FieldError as error:
        raise EntryError(name, error) from None
    return source


def merge_entries(base: Entry, entry: Entry) -> dict[str, Any]:
    """`base` with the fields of `entry` in their place, tables field by field.

    Fields that mark another origin than the one of `base` replace its origin as a whole, for instance by a mirror.
    """
    marked = [marks for marks in _ORIGINS.values() if any(mark in entry for mark in marks)]
    if any(not any(mark in base for mark in marks) for marks in marked):
        base = {key: value for key, value in base.items() if key in _OWN_FIELDS}
    tables = {
        key: {**base[key], **entry[key]}
        for key in _TABLES
        if isinstance(base.get(key), Mapping) and isinstance(entry.get(key), Mapping)
    }
    return {**base, **entry, **tables}


def _origin_kind(entry: Entry) -> type[Origin]:
    kinds = [kind for kind, marks in _ORIGINS.items() if any(mark in entry for mark in marks)]
    if len(kinds) != 1:
        found = f"has fields of {len(kinds)} origins" if kinds else "does not say where its text comes from"
        raise FieldError(f"the entry {found}; give the fields of one: {', '.join(ORIGIN_MARKS)}")
    return kinds[0]


def _table(entry: Entry, key: str) -> Any:
    table = entry.get(key, {})
    if not isinstance(table, Mapping):
        raise FieldError(f"field {key!r} is {table!r}; give a table of {', '.join(field_names(_TABLES[key]))}", key)
    try:
        return build_record(_TABLES[key], table)
    except FieldError as error:
        raise FieldError(f"{key}: {error}", key, *error.path) from None


def _check_values(source: Source) -> None:
    """What the types of the fields do not say."""
    origin, curation = source.origin, source.curation
    if isinstance(origin, UrlOrigin):
        for url in (*origin.urls, *origin.listings, *([origin.base] if origin.base else [])):
            if not _URL.fullmatch(url):
                raise FieldError(f"{url!r} is not a URL to read from; give https://, http://, gs://, s3:// or file://")
    for field in ("packages", "files"):
        if getattr(origin, field, True) == ():
            raise FieldError(f"field {field!r} is empty; give at least one", field)
    for field, value in (("max_bytes", getattr(origin, "max_bytes", 1)), ("rough_tokens", source.rough_tokens)):
        if value is not None and value <= 0:
            raise FieldError(f"field {field!r} is {value}; give a positive number", field)
    for field in ("max_reject_share", "min_retention"):
        if not 0 <= getattr(curation, field) <= 1:
            message = f"curation: field {field!r} is {getattr(curation, field)}; give a share from 0 to 1"
            raise FieldError(message, "curation", field)
    if isinstance(origin, UrlOrigin) and not (origin.urls or origin.listings):
        raise FieldError("fields 'urls' and 'listings' are both empty; give at least one URL")
