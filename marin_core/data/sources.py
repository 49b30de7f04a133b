"""Source declarations: what text there is, where it comes from and under which licence.

A source is declared here and read by the module of its kind (`installed.py`). Curation is `curate.py`.
"""

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import Any, Literal

from marin_core.errors import MarinError

STANDARD_LIBRARY = "python"


@dataclass(frozen=True)
class InstalledSource:
    """Text that is already on the machine: the standard library and packages that the lock file pins.

    kind `python`: source files. `prose`: README texts of the packages' metadata and docstrings without mathematics.
    `math`: docstrings with mathematics. `max_bytes` (UTF-8) is shared out evenly among the packages.
    The packages of `python` sources and of docstring sources should not overlap, so that no docstring is in two.
    """

    name: str
    kind: Literal["python", "prose", "math"]
    packages: tuple[str, ...]
    max_bytes: int

    def identity(self) -> dict[str, Any]:
        """What determines the bytes of this source: the declaration and the installed versions.

        Raises:
            MarinError: a declared package is not installed.
        """
        versions = {package: installed_version(package) for package in self.packages}
        return {"kind": self.kind, "packages": versions, "max_bytes": self.max_bytes}


def installed_version(package: str) -> str:
    if package == STANDARD_LIBRARY:
        return platform.python_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise MarinError(
            f"source package {package!r} is not installed; run `uv sync`, or take it out of the source's declaration"
        ) from None


SOURCES: dict[str, InstalledSource] = {
    source.name: source
    for source in (
        InstalledSource(
            name="code",
            kind="python",
            packages=(
                STANDARD_LIBRARY,
                "dagster",
                "datatrove",
                "fsspec",
                "huggingface-hub",
                "marin-haliax",
                "marin-levanter",
                "sqlalchemy",
            ),
            max_bytes=10_000_000,
        ),
        InstalledSource(
            name="prose",
            kind="prose",
            packages=(
                "equinox",
                "jax",
                "matplotlib",
                "numpy",
                "optax",
                "pandas",
                "polars",
                "pyarrow",
                "scipy",
                "transformers",
            ),
            max_bytes=10_000_000,
        ),
        InstalledSource(
            name="math",
            kind="math",
            packages=("equinox", "jax", "matplotlib", "numpy", "optax", "polars", "scipy"),
            max_bytes=10_000_000,
        ),
    )
}
