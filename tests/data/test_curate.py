"""Curation: what normalization keeps, which documents are dropped and counted, and what a reader can rely on."""

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_core.data.curate import MAX_WHITESPACE_RUN, curate, normalized_text, read_documents, write_raw
from marin_core.data.installed import Document
from marin_core.data.sources import InstalledSource
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store

RAW = ArtifactSpec("raw/test", "read_source", "1")
CURATED = ArtifactSpec("curated/test", "curate", "1", {"source": "test"}, {"raw": RAW})

# Letters, and every kind of blank that Unicode calls white space.
WHITE = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
RUNS = st.builds(lambda character, length: character * length, st.sampled_from(WHITE), st.integers(1, 300))
TEXTS = st.lists(st.text() | st.text(alphabet=f"ab{WHITE}") | RUNS).map("".join)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@given(TEXTS)
@example("a\r\r\nb")
@settings(deadline=None)
def test_normalization_is_idempotent(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once


@given(TEXTS)
@settings(deadline=None)
def test_normalization_never_makes_a_text_longer(text: str) -> None:
    assert len(normalize(text)) <= len(text)


@given(TEXTS)
@settings(deadline=None)
def test_normalization_drops_nothing_but_whitespace(text: str) -> None:
    assert re.sub(f"[{WHITE}]", "", normalize(text)) == re.sub(f"[{WHITE}]", "", text)


@given(TEXTS)
@settings(deadline=None)
def test_no_run_of_whitespace_is_long_after_normalization(text: str) -> None:
    assert not re.search(f"[{WHITE}]{{{MAX_WHITESPACE_RUN + 1}}}", normalize(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("  a  b \n", "a  b", id="outer blanks go, inner ones stay"),
        pytest.param("a\r\nb\r\n\r\nc", "a\nb\n\nc", id="line ends"),
        pytest.param("a" + " " * 128 + "b", "a" + " " * 128 + "b", id="128 blanks stay"),
        pytest.param("a" + " " * 129 + "b", "a" + " " * 128 + "b", id="129 blanks are cut"),
        pytest.param("a" + "\n\t" * 500 + "b", "a" + "\n\t" * 64 + "b", id="the first 128 of a mixed run stay"),
        pytest.param(" \t\r\n\u3000", "", id="nothing but blanks"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_normalization_by_example(text: str, expected: str) -> None:
    assert normalize(text) == expected


def test_fifty_megabytes_of_blanks_take_seconds() -> None:
    start = time.monotonic()
    assert normalize("a" + " " * 50_000_000 + "b") == "a" + " " * MAX_WHITESPACE_RUN + "b"
    assert time.monotonic() - start < 20


def test_the_id_of_a_document_is_the_hash_of_its_normalized_text(store: Store) -> None:
    frame, _ = curated(store, [document("  Zürich\r\nBern  ")])
    assert frame["text"].to_list() == ["Zürich\nBern"]
    assert frame["id"].to_list() == [xxhash.xxh3_128_hexdigest("Zürich\nBern".encode())]


def test_exact_duplicates_are_removed_and_counted(store: Store) -> None:
    frame, record = curated(store, [document("a"), document("b"), document(" a "), document("a\r\n")])
    assert sorted(frame["text"]) == ["a", "b"]
    assert record.summary["exact_duplicates"] == 2


def test_of_equal_documents_the_first_by_package_and_path_is_kept(store: Store) -> None:
    documents = [document("a", "numpy", "1.py"), document("a", "jax", "2.py"), document("a", "jax", "1.py")]
    frame, _ = curated(store, documents)
    assert frame.select("package", "path").rows() == [("jax", "1.py")]


def test_empty_documents_are_dropped_and_counted(store: Store) -> None:
    frame, record = curated(store, [document(""), document(" \n"), document("a")])
    assert frame["text"].to_list() == ["a"]
    assert record.summary["empty"] == 2


def test_the_counts_add_up(store: Store) -> None:
    frame, record = curated(store, [document(text) for text in ("a", "a", "", "é", "b", " b")])
    summary = record.summary
    assert summary["documents_in"] == 6
    assert summary["documents_in"] == summary["empty"] + summary["exact_duplicates"] + summary["documents"]
    assert summary["documents"] == len(frame) == 3
    assert summary["bytes"] == len("aéb".encode())


def test_documents_are_sorted_by_id(store: Store) -> None:
    frame, _ = curated(store, [document(str(number)) for number in range(200)])
    assert frame["id"].to_list() == sorted(frame["id"])


def test_licence_and_provenance_are_kept(store: Store) -> None:
    documents = [
        Document("alpha", "jax", "0.11.2", "jax/a.py", "Apache-2.0"),
        Document("beta", "scipy", "1.18", "scipy/b.py:f:3", "BSD License"),
    ]
    frame, record = curated(store, documents)
    assert frame.columns == ["id", "text", "source", "licence", "package", "version", "path"]
    rows = frame.sort("text").drop("id").to_dicts()
    assert rows == [{**dataclasses.asdict(kept), "source": "test"} for kept in documents]
    assert record.summary["licences"] == ["Apache-2.0", "BSD License"]


def test_the_order_of_raw_documents_changes_no_byte(tmp_path: Path) -> None:
    documents = [document(f"text {number % 50}", path=f"{number}.py") for number in range(100)]
    _, forwards = curated(Store(str(tmp_path / "forwards")), documents)
    _, backwards = curated(Store(str(tmp_path / "backwards")), documents[::-1])
    assert forwards.files == backwards.files
    assert forwards.content == backwards.content


def test_two_fresh_stores_curate_the_same_bytes(tmp_path: Path) -> None:
    source = InstalledSource("test", "python", ("fsspec", "xxhash"), 200_000)

    def build(root: Path) -> list[ArtifactRecord]:
        store = Store(str(root))
        with store.writer(RAW) as writer:
            raw = writer.commit(write_raw(source, writer, print))
        with store.writer(CURATED) as writer:
            return [raw, writer.commit(curate("test", store.artifact(RAW), writer, print))]

    first, second = build(tmp_path / "first"), build(tmp_path / "second")
    assert [record.files for record in first] == [record.files for record in second]
    assert first[1].summary["documents"] > 10


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(InstalledSource("test", "math", ("xxhash",), 100_000), id="no text of the kind"),
        pytest.param(InstalledSource("test", "math", ("optax",), 100), id="no room"),
    ],
)
def test_a_source_without_documents_is_a_one_line_error(store: Store, source: InstalledSource) -> None:
    with store.writer(RAW) as writer, pytest.raises(MarinError, match="source 'test' has no documents") as refused:
        write_raw(source, writer, print)
    assert "\n" not in str(refused.value)


def test_a_source_with_nothing_left_is_a_one_line_error(store: Store) -> None:
    with pytest.raises(MarinError, match=r"'test' has no documents left after curation \(2 came in\)") as refused:
        curated(store, [document(" "), document("\n")])
    assert "\n" not in str(refused.value)
    assert store.record(CURATED.name, CURATED.fingerprint) is None


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut off"),
        pytest.param(lambda data: b"not a table\n" * 100, id="something else"),
        pytest.param(lambda data: data[:8] + bytes(200) + data[208:], id="zeros inside"),
    ],
)
def test_a_damaged_file_is_a_one_line_error_with_a_remedy(store: Store, damage: Callable[[bytes], bytes]) -> None:
    raw = commit_raw(store, [document(f"text {number}") for number in range(1000)])
    path = Path(raw.path("documents.parquet"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MarinError) as refused:
        read_documents(raw)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(f"{path} is damaged")
    assert f"delete the folder {raw.url} and materialize raw/test again" in message


def test_a_missing_file_is_a_one_line_error_with_a_remedy(store: Store) -> None:
    raw = commit_raw(store, [document("a")])
    Path(raw.path("documents.parquet")).unlink()
    with pytest.raises(MarinError, match=r"^[^\n]*documents\.parquet is missing[^\n]*materialize raw/test again$"):
        read_documents(raw)


def document(text: str, package: str = "numpy", path: str = "a.py") -> Document:
    return Document(text, package, "1.0", path, "MIT")


def normalize(text: str) -> str:
    return pl.DataFrame({"text": [text]}).select(normalized_text(pl.col("text"))).item()


def commit_raw(store: Store, documents: Sequence[Document]) -> Artifact:
    with store.writer(RAW) as writer:
        with writer.open("documents.parquet") as file:
            pl.DataFrame([dataclasses.asdict(document) for document in documents]).write_parquet(file)
        writer.commit({})
    return store.artifact(RAW)


def curated(store: Store, documents: Sequence[Document]) -> tuple[pl.DataFrame, ArtifactRecord]:
    """The curated table of some raw documents, read back, and its record."""
    raw = commit_raw(store, documents)
    with store.writer(CURATED) as writer:
        record = writer.commit(curate("test", raw, writer, print))
    return read_documents(store.artifact(CURATED)), record
