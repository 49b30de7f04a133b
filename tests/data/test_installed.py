"""Installed origins: the same documents in the same order everywhere, within the cap, and of the declared kind."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from pydoc_data.topics import topics

import pytest

from marin_core.data.sources.catalogue import load_catalogue
from marin_core.data.sources.declaration import STANDARD_LIBRARY, InstalledOrigin
from marin_core.data.sources.installed import Document, read_installed
from marin_core.errors import MarinError

SMALL = {
    "code": InstalledOrigin("python", (STANDARD_LIBRARY, "fsspec"), 400_000),
    "prose": InstalledOrigin("prose", ("optax", "equinox"), 100_000),
    "math": InstalledOrigin("math", ("optax", "equinox"), 30_000),
    "topics": InstalledOrigin("topics", (STANDARD_LIBRARY,), 200_000),
}
PRINT_PATHS = """
import sys
from marin_core.data.sources.installed import read_installed
from marin_core.data.sources.declaration import InstalledOrigin
kind, size, *packages = sys.argv[1:]
for document in read_installed(InstalledOrigin(kind, tuple(packages), int(size))):
    print(document.package, document.path)
"""


@pytest.fixture(scope="module", params=list(SMALL))
def origin(request: pytest.FixtureRequest) -> InstalledOrigin:
    return SMALL[request.param]


@pytest.fixture(scope="module")
def documents(origin: InstalledOrigin) -> list[Document]:
    return list(read_installed(origin))


def test_every_package_of_a_source_gives_documents(origin: InstalledOrigin, documents: list[Document]) -> None:
    assert {document.package for document in documents} == set(origin.packages)


def test_the_documents_come_in_the_same_order_twice(origin: InstalledOrigin, documents: list[Document]) -> None:
    assert list(read_installed(origin)) == documents


def test_the_order_does_not_depend_on_the_process(origin: InstalledOrigin, documents: list[Document]) -> None:
    command = [sys.executable, "-c", PRINT_PATHS, origin.content, str(origin.max_bytes), *origin.packages]
    printed = subprocess.run(command, env={"PYTHONHASHSEED": "12345"}, capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == [f"{document.package} {document.path}" for document in documents]


def test_the_cap_holds_for_every_package(origin: InstalledOrigin, documents: list[Document]) -> None:
    share = origin.max_bytes // len(origin.packages)
    assert all(0 < size_of(documents, package) <= share for package in origin.packages)


def test_a_package_with_enough_text_fills_most_of_its_share() -> None:
    origin = InstalledOrigin("python", (STANDARD_LIBRARY,), 300_000)
    assert 0.9 * 300_000 < size_of(list(read_installed(origin)), STANDARD_LIBRARY) <= 300_000


def test_a_smaller_cap_gives_fewer_bytes() -> None:
    small, large = (list(read_installed(InstalledOrigin("python", ("fsspec",), size))) for size in (50_000, 100_000))
    assert size_of(small, "fsspec") < size_of(large, "fsspec")


def test_paths_are_relative_and_say_nothing_of_this_machine(documents: list[Document]) -> None:
    paths = [PurePosixPath(document.path) for document in documents]
    assert not [path for path in paths if path.is_absolute() or ".." in path.parts or "site-packages" in path.parts]
    assert not [path for path in paths if sys.prefix in str(path) or sys.base_prefix in str(path)]


def test_a_path_names_one_document(documents: list[Document]) -> None:
    assert len({(document.package, document.path) for document in documents}) == len(documents)


def test_tests_and_vendored_copies_are_left_out(documents: list[Document]) -> None:
    folders = {part for document in documents for part in PurePosixPath(document.path).parts[:-1]}
    assert not folders & {"test", "tests", "_vendor", "vendor", "__pycache__"}


def test_every_document_states_version_and_licence(documents: list[Document]) -> None:
    assert not [document for document in documents if not document.version or not document.licence]


@pytest.mark.parametrize(
    ("package", "licence"),
    [(STANDARD_LIBRARY, "PSF-2.0"), ("fsspec", "BSD-3-Clause"), ("equinox", "Apache Software License")],
)
def test_the_licence_is_the_packages_own_statement(package: str, licence: str) -> None:
    first = next(iter(read_installed(InstalledOrigin("python", (package,), 400_000))))
    assert first.licence == licence


def test_mathematical_docstrings_contain_mathematics() -> None:
    texts = [document.text for document in read_installed(SMALL["math"])]
    assert [text for text in texts if not any(sign in text for sign in (":math:`", ".. math::", "$", "\\"))] == []


def test_docstrings_of_prose_contain_no_mathematics() -> None:
    texts = [document.text for document in read_installed(SMALL["prose"]) if document.path != "METADATA"]
    assert len(texts) > 10
    assert [text for text in texts if any(sign in text for sign in (":math:`", ".. math::", "\\frac", "\\sum"))] == []


def test_prose_and_mathematics_of_the_same_packages_share_no_document() -> None:
    prose, mathematics = ({(d.package, d.path) for d in read_installed(SMALL[kind])} for kind in ("prose", "math"))
    assert not prose & mathematics


def test_prose_begins_with_the_readme_of_a_package() -> None:
    first = next(iter(read_installed(SMALL["prose"])))
    assert first.path == "METADATA"
    assert "optax" in first.text.lower()


@pytest.mark.parametrize("read", [InstalledOrigin.identity, lambda origin: list(read_installed(origin))])
def test_an_unknown_package_is_a_one_line_error(read: Callable[[InstalledOrigin], object]) -> None:
    with pytest.raises(MarinError, match=r"^source package 'no-such-package' is not installed; run `uv sync`") as error:
        read(InstalledOrigin("python", ("no-such-package",), 1000))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["code", "prose", "math", "language_reference"])
def test_the_laptops_sources_can_be_identified(name: str) -> None:
    origin = load_catalogue()[name].origin
    assert isinstance(origin, InstalledOrigin)
    identity = origin.identity()
    assert list(identity["packages"]) == list(origin.packages)
    assert all(identity["packages"].values())


def test_topics_are_whole_entries_of_the_language_reference() -> None:
    origin = load_catalogue()["language_reference"].origin
    assert isinstance(origin, InstalledOrigin)
    documents = list(read_installed(origin))
    assert {document.text for document in documents} == set(topics.values())
    assert {document.licence for document in documents} == {"PSF-2.0"}


def test_only_the_standard_library_has_topics() -> None:
    with pytest.raises(MarinError, match=r"^package 'optax' has no topics; only 'python' ships"):
        list(read_installed(InstalledOrigin("topics", ("optax",), 1000)))


def size_of(documents: Sequence[Document], package: str) -> int:
    return sum(len(document.text.encode()) for document in documents if document.package == package)
