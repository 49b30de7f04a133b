"""What `--select` means here: `delphi/*` is what is under `delphi/`, and a selection of nothing is an error.

Dagster reads a bare `delphi/*` as "the key `delphi/` and everything downstream", which selects nothing, and it takes
an empty selection for "everything". `install` teaches the installed Dagster both; every other selection stays
exactly as Dagster reads it. Guarding the work itself is `guards.py`.
"""

import re
import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import click
import dagster as dg
from dagster._core.definitions.asset_selection import AssetSelection, DagsterInvalidAssetSelectionError
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.errors import DagsterInvalidSubsetError

from marin_assets.keys import artifact_name, asset_key
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import Store

_PREFIX = re.compile(r"([A-Za-z0-9_]+(?:/[A-Za-z0-9_]+)*)/\*")


def install() -> None:
    """Give `AssetSelection.from_string` and `from_coercible` the meanings above. Doing it twice changes nothing."""
    if getattr(AssetSelection, "_marin_installed", False):
        return
    dagster_from_string: Callable[..., AssetSelection] = AssetSelection.from_string
    dagster_from_coercible: Callable[..., AssetSelection] = AssetSelection.from_coercible

    def from_string(string: str, include_sources: bool = False) -> AssetSelection:
        match = _PREFIX.fullmatch(string.strip())
        return PrefixSelection(match.group(1)) if match else dagster_from_string(string, include_sources)

    def from_coercible(selection: Any) -> AssetSelection:
        try:
            read = dagster_from_coercible(selection)
        except DagsterInvalidAssetSelectionError as error:
            raise click.UsageError(
                f"{error}; a selection is for instance delphi/*, delphi/verdict or +delphi/verdict"
            ) from None
        texts = [selection] if isinstance(selection, str) else selection
        if isinstance(texts, Sequence) and texts and all(isinstance(text, str) for text in texts):
            return NonEmptySelection(",".join(texts), read)
        return read

    AssetSelection.from_string = staticmethod(from_string)  # type: ignore[method-assign, assignment]
    AssetSelection.from_coercible = staticmethod(from_coercible)  # type: ignore[method-assign, assignment]
    AssetSelection._marin_installed = True  # type: ignore[attr-defined]


@dataclass(frozen=True)
class PrefixSelection(AssetSelection):
    """Every asset under a prefix, and before them every unpartitioned asset upstream that the store lacks or that is
    made from such a one."""

    prefix: str

    def resolve_inner(self, asset_graph: BaseAssetGraph, allow_missing: bool) -> AbstractSet[dg.AssetKey]:
        start = tuple(self.prefix.split("/"))
        keys = asset_graph.executable_asset_keys
        selected = {k for k in keys if len(k.path) > len(start) and tuple(k.path[: len(start)]) == start}
        prerequisites = _missing_upstream(asset_graph, selected)
        if prerequisites:
            names = ", ".join(sorted(artifact_name(key) for key in prerequisites))
            print(
                f"{self}: adding {len(prerequisites)} assets that the store lacks or that come after those: {names}",
                file=sys.stderr,
            )
        return selected | prerequisites

    def to_selection_str(self) -> str:
        return f"{self.prefix}/*"

    def __str__(self) -> str:
        return self.to_selection_str()


@dataclass(frozen=True)
class NonEmptySelection(AssetSelection):
    """Another selection, which must not be empty."""

    text: str
    selection: AssetSelection

    def resolve_inner(self, asset_graph: BaseAssetGraph, allow_missing: bool) -> AbstractSet[dg.AssetKey]:
        try:
            keys = self.selection.resolve_inner(asset_graph, allow_missing)
        except DagsterInvalidSubsetError:  # a key that does not exist
            keys = set()
        if not keys:
            groups = sorted({str(asset_graph.get(key).group_name) for key in asset_graph.executable_asset_keys})
            raise click.UsageError(
                f"the selection {self.text!r} matches no asset, nothing was run; select from the groups "
                f"{', '.join(f'{name}/*' for name in groups)}"
            )
        return keys

    def to_selection_str(self) -> str:
        return self.selection.to_selection_str()


def _missing_upstream(asset_graph: BaseAssetGraph, selected: AbstractSet[dg.AssetKey]) -> set[dg.AssetKey]:
    upstream: set[dg.AssetKey] = set()
    front = set(selected)
    while front:
        front = {p for key in front for p in asset_graph.get(key).parent_keys} - upstream - set(selected)
        upstream |= front
    try:
        profile = load_profile()
        specs = {asset_key(spec.name): spec for spec in LabGraph.of(profile).unpartitioned()}
        store = Store(profile.place.store)
        found = {key for key in upstream if key in specs and store.current(specs[key]) is None}
        while more := {k for k in upstream - found if k in specs and asset_graph.get(k).parent_keys & found}:
            found |= more
        return found
    except MarinError as error:
        raise click.ClickException(str(error)) from None
