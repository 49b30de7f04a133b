"""From a profile's name to the profile: read, checked, built. Needs no network and no credentials."""

from typing import Any

from marin_core import environment
from marin_core.data.sources.tables import FieldError, reading
from marin_core.errors import MarinError
from marin_core.profile.declaration import Profile
from marin_core.profile.layers import Layers, profile_file, read_layers, shipped_profiles
from marin_core.profile.place import build_place
from marin_core.profile.scale import build_scale

# What stands in a dry run for what a lab has not chosen yet.
UNSET_STORE = "gs://unset"
UNSET_IMAGE = "unset"

_SECTIONS = ("scale", "place")


def load_profile(name: str | None = None, *, dry: bool = False) -> Profile:
    """The profile that MARIN_PROFILE (or `name`) asks for: a shipped one, or the path of a TOML file.

    With `dry`, a place on a cluster may lack its store and its image.

    Raises:
        MarinError: there is no such profile, or something in it is wrong; the message has file and line.
    """
    name = name or environment.profile_name()
    file = profile_file(name)
    if file is None:
        known = ", ".join(shipped_profiles())
        raise MarinError(
            f"unknown profile {name!r}; set MARIN_PROFILE to one of {known}, or to the path of a .toml file"
        )
    layers = read_layers(file)
    try:
        return _build(layers, dry=dry)
    except FieldError as error:
        raise layers.located(str(error), error.path) from None


def shipped_with(recipe: str) -> list[str]:
    """The shipped profiles with a recipe of that name, those first whose jobs run on this machine.

    Of a profile only what it builds is read: it may be one whose place needs settings that this environment lacks.
    """
    tables = {name: read_layers(file).table for name in shipped_profiles() if (file := profile_file(name))}
    found = [name for name, table in tables.items() if build_scale(table["scale"]).recipe.name == recipe]
    return sorted(found, key=lambda name: "kubernetes" in tables[name]["place"])


def _build(layers: Layers, *, dry: bool) -> Profile:
    if unknown := [key for key in layers.table if key not in _SECTIONS]:
        raise FieldError(f"unknown section {unknown[0]!r}; there are scale and place", unknown[0])
    scale, place = (_section(layers.table, name) for name in _SECTIONS)
    with reading("scale"):
        built = build_scale(scale)
    with reading("place"):
        chosen = build_place(_with_stand_ins(place) if dry else place)
    with reading("place", "heldout_pool"):
        for flops in built.heldout_budgets:
            chosen.heldout_pools_of(flops)
    return Profile(layers.file.stem, built, chosen)


def _with_stand_ins(place: dict[str, Any]) -> dict[str, Any]:
    kubernetes = place.get("kubernetes")
    if not isinstance(kubernetes, dict):
        return place
    return {"store": UNSET_STORE, **place, "kubernetes": {"image": UNSET_IMAGE, **kubernetes}}


def _section(table: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in table:
        raise FieldError(f"section {name!r} is missing; a profile has [scale] and [place], its own or by `extends`")
    if not isinstance(table[name], dict):
        raise FieldError(f"section {name!r} is not a table; write [{name}]", name)
    return table[name]
