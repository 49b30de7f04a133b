"""Source declarations: what text there is, where it comes from, under which licence, how it is laid out and curated.

A source is data, an entry of `catalogue.toml` or of a profile's `[scale.sources]`; `catalogue.py` reads entries. What
an origin's bytes are got with is in `acquire.py` and beside it.
"""

import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_core.errors import MarinError

STANDARD_LIBRARY = "python"


@dataclass(frozen=True)
class InstalledOrigin:
    """Text that is already on the machine: the standard library and packages that the lock file pins.

    content `python`: source files. `prose`: README texts of the packages' metadata and docstrings without mathematics.
    `math`: docstrings with mathematics. `topics`: the language reference that Python's help system ships, an entry a
    document, of the package `python` alone. `max_bytes` (UTF-8) is shared out evenly among the packages. The packages
    of `python` sources and of docstring sources should not overlap, so that no docstring is in two.
    """

    content: Literal["python", "prose", "math", "topics"]
    packages: tuple[str, ...]
    max_bytes: int

    def identity(self) -> dict[str, Any]:
        """The declaration and the installed versions.

        Raises:
            MarinError: a declared package is not installed.
        """
        versions = {package: installed_version(package) for package in self.packages}
        return {"content": self.content, "packages": versions, "max_bytes": self.max_bytes}


@dataclass(frozen=True)
class HubOrigin:
    """Files of a Hugging Face dataset: those that match one of `files` (globs, `**` crosses folders) at `revision` (a
    commit, or a name that the download resolves to one and records)."""

    dataset: str
    revision: str
    files: tuple[str, ...]

    def identity(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "revision": self.revision, "files": sorted(self.files)}


@dataclass(frozen=True)
class UrlOrigin:
    """Files by URL: each of `urls`, every file below a URL that ends in `/` (an object-store prefix), and every line of
    each of `listings` (text files of paths, possibly gzipped, relative to `base`).

    Schemes: https, http, gs, s3, file.
    """

    urls: tuple[str, ...] = ()
    listings: tuple[str, ...] = ()
    base: str = ""
    # Only files whose path contains this.
    containing: str = ""

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class FolderOrigin:
    """Files of a local folder that match one of `files` (globs). The content, not the place, is the identity."""

    path: str
    files: tuple[str, ...] = ("**/*",)

    def identity(self) -> dict[str, Any]:
        """Digest of the relative paths and contents of the files.

        Raises:
            MarinError: no such folder, or no file in it matches.
        """
        from marin_core.data.sources.folder import folder_digest, list_folder

        return {"files": sorted(self.files), "content": folder_digest(list_folder(self))}


Origin = InstalledOrigin | HubOrigin | UrlOrigin | FolderOrigin


@dataclass(frozen=True)
class Layout:
    """How documents lie in a source's files. Compression (`.gz`, `.zst`, `.bz2`, `.xz`) is told by the file name.

    `jsonl` files have an object a line, `json` files one array of objects or of texts. `text` files are one document
    each; of `warc` files the text of every HTML or plain-text response. With `messages_field` the documents are
    conversations: lists of `{role, content}`.
    """

    format: Literal["jsonl", "json", "parquet", "warc", "text"]
    text_field: str = "text"
    id_field: str | None = None
    url_field: str | None = None
    messages_field: str | None = None
    # Columns carried along to the curated documents.
    keep_fields: tuple[str, ...] = ()
    # A licence for each document, where the files say it; else the source's.
    licence_field: str | None = None


@dataclass(frozen=True)
class Curation:
    """What happens to a source between its files and its curated documents.

    `rules` names the quality rules (`quality/config.py`). More than `max_reject_share` of unreadable records fails the
    source when it is normalized; a stage that keeps less than `min_retention` of the documents fails its check. Neither
    changes a byte, and neither is part of an artifact's identity.
    """

    rules: Literal["prose", "prose_punctuation", "code", "none"] = "none"
    near_duplicates: bool = True
    max_reject_share: float = 0.01
    min_retention: float = 0.1


@dataclass(frozen=True)
class Source:
    """One declared source. An `evaluation` source is never trained on: training text that contains it is removed."""

    name: str
    origin: Origin
    licence: str
    layout: Layout
    curation: Curation = field(default_factory=Curation)
    role: Literal["train", "evaluation"] = "train"
    rough_tokens: float | None = None
    homepage: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Complete; `from_json` restores it."""
        kind = next(kind for kind, origin in ORIGINS.items() if isinstance(self.origin, origin))
        return {**dataclasses.asdict(self), "origin": {"kind": kind, **dataclasses.asdict(self.origin)}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Source":
        origin = dict(data["origin"])
        return cls(
            **{
                **data,
                "origin": ORIGINS[origin.pop("kind")](**_tuples(origin)),
                "layout": Layout(**_tuples(data["layout"])),
                "curation": Curation(**data["curation"]),
            }
        )


ORIGINS: dict[str, Any] = {
    "installed": InstalledOrigin,
    "hub": HubOrigin,
    "urls": UrlOrigin,
    "folder": FolderOrigin,
}


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


# What `acquire.py` writes of an installed origin: one Parquet file.
INSTALLED_LAYOUT = Layout(format="parquet", keep_fields=("package", "version", "path"), licence_field="licence")


def installed_version(package: str) -> str:
    if package == STANDARD_LIBRARY:
        return platform.python_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise MarinError(
            f"source package {package!r} is not installed; run `uv sync`, or take it out of the source's declaration"
        ) from None
