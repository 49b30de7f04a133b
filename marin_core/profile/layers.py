"""A profile's TOML file and those that it extends, merged into one table that remembers where each key stands.

`extends = "laptop"` at the top of a profile, or a list of profiles, names shipped ones or paths of files, relative to
the profile's own folder. A later one wins over an earlier one, and the profile itself over all of them. Tables merge
key by key, but for the tables of `[scale]`: a recipe, a mixture, a tokenizer, a set of sources is one decision, and the
later one replaces the earlier one whole. (Merged weights would be a mixture that nobody wrote down.)
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin_core.errors import MarinError
from marin_core.profile.lines import KeyPath, key_lines

_SHIPPED = Path(__file__).parents[1] / "profiles"
_EXTENDS = "extends"


def shipped_profiles() -> list[str]:
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def profile_file(name: str, folder: Path = Path()) -> Path | None:
    """The file of a shipped profile's name, or of a path (ending in `.toml`) relative to `folder`; None if absent."""
    file = folder / Path(name).expanduser() if name.endswith(".toml") else _SHIPPED / f"{name}.toml"
    return file if file.is_file() else None


@dataclass(frozen=True)
class Layers:
    """A profile's merged table without its `extends`; `places` has the file and line of each of its keys."""

    file: Path
    table: dict[str, Any]
    places: dict[KeyPath, tuple[Path, int]] = field(default_factory=dict)

    def located(self, message: str, path: KeyPath) -> MarinError:
        """`message` with the file and line of the key at `path`, or of the nearest table around it."""
        while path and path not in self.places:
            path = path[:-1]
        if not path:
            return MarinError(f"profile {self.file}: {message}")
        file, line = self.places[path]
        return MarinError(f"profile {file}, line {line}: {message}")

    def under(self, later: "Layers") -> "Layers":
        """These with `later` on top, of whose file the result is."""
        return Layers(later.file, _merged(self.table, later.table), {**self.places, **later.places})


def read_layers(file: Path, extending: tuple[Path, ...] = ()) -> Layers:
    """The profile in `file` on top of those that it extends. `extending` are the files on the way to this one.

    Raises:
        MarinError: a file is missing, unreadable or not TOML, or extends itself.
    """
    own, extends = _read(file)
    merged: Layers | None = None
    for name in extends:
        base = _base(own, name, (*extending, file.resolve()))
        merged = base if merged is None else merged.under(base)
    return own if merged is None else merged.under(own)


def _base(own: Layers, name: str, extending: tuple[Path, ...]) -> Layers:
    file = profile_file(name, own.file.parent)
    if file is None:
        known = ", ".join(shipped_profiles())
        message = f"extends the unknown profile {name!r}; give one of {known}, or the path of a .toml file from here"
        raise own.located(message, (_EXTENDS,))
    if file.resolve() in extending:
        raise own.located(f"extends {name!r}, which extends this profile; take one of the two out", (_EXTENDS,))
    return read_layers(file, extending)


def _read(file: Path) -> tuple[Layers, list[str]]:
    """One file by itself, and the names of what it extends."""
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MarinError(_syntax_error(file, str(error))) from None
    except (OSError, UnicodeDecodeError) as error:
        raise MarinError(f"profile {file} cannot be read: {error}; give a TOML file in UTF-8") from None
    layers = Layers(file, table, {path: (file, line) for path, line in key_lines(text).items()})
    extends = table.pop(_EXTENDS, [])
    names = [extends] if isinstance(extends, str) else extends
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise layers.located(f"{_EXTENDS} is {extends!r}; give a profile, or a list of profiles", (_EXTENDS,))
    return layers, names


def _syntax_error(file: Path, message: str) -> str:
    match = re.search(r"(.*) \(at line (\d+), column (\d+)\)", message)
    if match is None:
        return f"profile {file}: not valid TOML: {message}"
    return f"profile {file}, line {match[2]}: not valid TOML: {match[1]} at column {match[3]}"


def _merged(base: Mapping[str, Any], later: Mapping[str, Any], path: KeyPath = ()) -> dict[str, Any]:
    merged = dict(base)
    for key, value in later.items():
        inner = (*path, key)
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value, inner) if both and not _is_decision(inner) else value
    return merged


def _is_decision(path: KeyPath) -> bool:
    return len(path) == 2 and path[0] == "scale"
