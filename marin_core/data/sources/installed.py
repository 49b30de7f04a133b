"""Reads the documents of an `InstalledOrigin` from the Python environment that runs it.

Nothing is downloaded and nothing is copied into the repository; the lock file fixes the versions and so the text.
"""

import ast
import importlib.metadata
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from marin_core.data.sources.declaration import STANDARD_LIBRARY, InstalledOrigin, installed_version
from marin_core.errors import MarinError

# Tests, vendored copies and tables are not written by people for people.
_SKIPPED_FOLDERS = {
    "__pycache__",
    "test",
    "tests",
    "_vendor",
    "vendor",
    "site-packages",
    "idlelib",
    "lib2to3",
    "encodings",
    "pydoc_data",
}
_MAX_FILE_BYTES = 200_000
_MIN_DOCSTRING_CHARS = 200
_MATHEMATICS = re.compile(r":math:`|\.\. math::|\\(?:frac|sum|int|alpha|sqrt|mathbb|partial)\b|\$[^$\n]+\$")


@dataclass(frozen=True)
class Document:
    """One document before curation. `path` is relative to the package and never absolute."""

    text: str
    package: str
    version: str
    path: str
    licence: str


def read_installed(origin: InstalledOrigin) -> Iterator[Document]:
    """The documents of a source in a fixed order, at most `max_bytes` of UTF-8 in all.

    Each package gets an equal share. Within it files are taken in the order of a hash of their path: the sample is
    spread over the package and is the same on every machine with the same lock file.

    Raises:
        MarinError: a package is not installed, or is not the one that has topics.
    """
    share = origin.max_bytes // len(origin.packages)
    for package in origin.packages:
        version, licence = installed_version(package), _licence(package)
        taken = 0
        for path, text in _texts(origin.content, package):
            size = len(text.encode())
            if taken + size > share:
                if taken > 0.95 * share:
                    break
                continue
            taken += size
            yield Document(text, package, version, path, licence)


def _texts(kind: str, package: str) -> Iterator[tuple[str, str]]:
    if kind == "topics":
        yield from _topics(package)
        return
    if kind == "prose" and package != STANDARD_LIBRARY:
        readme = importlib.metadata.metadata(package).json.get("description", "")
        if isinstance(readme, str) and readme.strip():
            yield "METADATA", readme
    for path, file in _python_files(package):
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a handful of files declare another encoding
        if kind == "python":
            yield path, text
        else:
            wants_mathematics = kind == "math"
            if wants_mathematics and not _MATHEMATICS.search(text):
                continue  # spares parsing most files
            for name, docstring in _docstrings(text):
                if bool(_MATHEMATICS.search(docstring)) == wants_mathematics:
                    yield f"{path}:{name}", docstring


def _topics(package: str) -> list[tuple[str, str]]:
    if package != STANDARD_LIBRARY:
        raise MarinError(f"package {package!r} has no topics; only {STANDARD_LIBRARY!r} ships the language reference")
    from pydoc_data.topics import topics

    return _shuffled((f"pydoc_data/topics.py:{name}", text) for name, text in topics.items())


def _python_files(package: str) -> list[tuple[str, Path]]:
    if package == STANDARD_LIBRARY:
        root = Path(sysconfig.get_path("stdlib"))
        found = [(str(p.relative_to(root)), p) for p in root.rglob("*.py")]
    else:
        files = importlib.metadata.files(package) or []
        found = [(str(f), Path(str(f.locate()))) for f in files if f.suffix == ".py" and ".." not in f.parts]
    kept = [(name, p) for name, p in found if not _SKIPPED_FOLDERS.intersection(Path(name).parts[:-1])]
    # Written by each build of Python about its own machine.
    kept = [(name, p) for name, p in kept if not p.name.startswith("_sysconfigdata")]
    kept = [(name, p) for name, p in kept if p.is_file() and p.stat().st_size <= _MAX_FILE_BYTES]
    return _shuffled(kept)


def _shuffled[T](named: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    return sorted(named, key=lambda item: (xxhash.xxh3_64_intdigest(item[0].encode()), item[0]))


def _docstrings(text: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and len(docstring) >= _MIN_DOCSTRING_CHARS:
                line = getattr(node, "lineno", 1)
                yield f"{getattr(node, 'name', 'module')}:{line}", docstring


def _licence(package: str) -> str:
    """The package's own statement of its licence: SPDX expression, classifier or free text, in that order."""
    if package == STANDARD_LIBRARY:
        return "PSF-2.0"
    metadata = importlib.metadata.metadata(package)
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [c for c in metadata.get_all("Classifier") or [] if c.startswith("License ::")]
    if classifiers:
        return classifiers[0].rsplit(" :: ", 1)[-1]
    text = metadata.get("License") or "unknown"
    return text.splitlines()[0][:80]
