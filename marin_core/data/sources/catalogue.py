"""Finds source entries: those that are shipped in `catalogue.toml`, and those of a profile's `[scale.sources]`.

A family is an entry with `members`; its other fields are shared. What one entry means is `entries.py`.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from marin_core.data.sources.declaration import Source
from marin_core.data.sources.entries import ORIGIN_MARKS, Entry, merge_entries, read_entry
from marin_core.errors import MarinError

_SHIPPED = Path(__file__).with_name("catalogue.toml")
_MEMBER = "{member}"


@cache
def load_catalogue() -> dict[str, Source]:
    """The shipped sources by name.

    Raises:
        MarinError: an entry is wrong.
    """
    return {name: read_entry(name, entry) for name, entry in _shipped().items()}


def parse_source(name: str, entry: Entry) -> Source:
    """The source of a profile's entry: a shipped one of that name with the entry's fields in their place, or a new one.

    Raises:
        MarinError: the entry is wrong; the message names the field, the value and what is allowed.
    """
    if not isinstance(entry, Mapping):
        raise MarinError(f"source {name!r} is {entry!r}; give a table of fields, or {{}} for a shipped source as it is")
    if name not in _shipped() and not entry:
        known = ", ".join(sorted({shipped.split("/")[0] for shipped in _shipped()}))
        raise MarinError(f"unknown source {name!r}; pick one of {known}, or say where its text comes from: {_MARKS}")
    return read_entry(name, merge_entries(_shipped().get(name, {}), entry))


def select_sources(entries: Mapping[str, Entry]) -> dict[str, Source]:
    """The sources of a profile's entries. An entry named like a shipped family stands for all its members.

    Raises:
        MarinError: an entry is wrong.
    """
    chosen: dict[str, Entry] = {}
    for name, entry in entries.items():
        family = [] if name in _shipped() else [each for each in _shipped() if each.startswith(f"{name}/")]
        if isinstance(entry, Mapping) and "members" in entry:
            chosen |= _members(name, entry)
        elif family:
            chosen |= dict.fromkeys(family, entry)
        else:
            chosen[name] = entry
    return {name: parse_source(name, entry) for name, entry in chosen.items()}


@cache
def _shipped() -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name, entry in tomllib.loads(_SHIPPED.read_text()).items():
        entries |= _members(name, entry) if "members" in entry else {name: entry}
    return entries


def _members(family: str, entry: Entry) -> dict[str, Entry]:
    """A family's entries by name. A member is a table of its own fields, or the text that stands for `{member}` in the
    shared ones."""
    shared = {key: value for key, value in entry.items() if key != "members"}
    if not isinstance(entry["members"], Mapping):
        raise MarinError(f"source {family!r}: field 'members' is {entry['members']!r}; give a table")
    entries: dict[str, Entry] = {}
    for member, own in entry["members"].items():
        fields, text = (own, member) if isinstance(own, Mapping) else ({}, str(own))
        entries[f"{family}/{member}"] = merge_entries(_replaced(shared, text), fields)
    return entries


def _replaced(value: Any, member: str) -> Any:
    if isinstance(value, str):
        return value.replace(_MEMBER, member)
    if isinstance(value, Mapping):
        return {key: _replaced(item, member) for key, item in value.items()}
    return [_replaced(item, member) for item in value] if isinstance(value, list) else value


_MARKS = ", ".join(ORIGIN_MARKS)
