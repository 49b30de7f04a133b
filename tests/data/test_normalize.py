"""Normalization: what a document's normal form and id are, what becomes of every record, and bytes that depend on
nothing but the raw files."""

import dataclasses
import gzip
import hashlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_core.data.normalization.merge import Sizes
from marin_core.data.normalization.stage import REJECTS, SIZES, RawFile, count_parts, group_files, normalize_stage
from marin_core.data.normalization.text import MAX_WHITESPACE_RUN, digests, hex_ids, normalize_texts, normalized_text
from marin_core.data.sources.declaration import Curation, FolderOrigin, Layout, Source
from marin_core.data.stages import run_stage
from marin_core.errors import MarinError
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store
from tests.data.parts import identity, read_folder, run_as_ranks

RAW = ArtifactSpec("raw/test", "fetch", "1")
NORMALIZED = ArtifactSpec("normalized/test", "normalize", "1", {"source": "test"}, {"raw": RAW})
SOURCE = Source("test", FolderOrigin("nowhere"), "MIT", Layout("jsonl"))
LENIENT = Curation(max_reject_share=0.05)
# Several parts, passes, row groups and items out of a few kilobytes.
SMALL = Sizes(part=5_000, pass_=2_000, row_group=700, item=3_000)

WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
RUNS = st.builds(lambda character, length: character * length, st.sampled_from(WHITE + "\0"), st.integers(1, 300))
ANY = st.text(st.characters(codec="utf-8"))
TEXTS = st.lists(ANY | st.text(alphabet=f"ab\0\x1c\u200b{WHITE}") | RUNS, max_size=8).map("".join)


class TestTexts:
    @given(st.lists(TEXTS, max_size=6))
    @example(["a\r\r\nb", "", "a\r\0\nb", "\0", "a\rb"])
    @settings(deadline=None)
    def test_normalization_is_idempotent(self, texts: list[str]) -> None:
        once = normalize(texts)
        assert normalize(once) == once

    @given(st.lists(TEXTS, max_size=6))
    @settings(deadline=None)
    def test_the_fast_way_is_the_defined_way(self, texts: list[str]) -> None:
        frame = pl.DataFrame({"text": texts}, schema={"text": pl.String})
        assert normalize(texts) == frame.select(normalized_text(pl.col("text")))["text"].to_list()

    @given(
        st.integers(0, 3),
        st.integers(0, 70),
        st.lists(st.sampled_from(WHITE), min_size=1, max_size=3),
        st.integers(100, 160),
    )
    @settings(deadline=None)
    def test_no_run_of_whitespace_escapes_by_its_place(
        self, before: int, at: int, white: list[str], length: int
    ) -> None:
        run = ("".join(white) * length)[:length].replace("\r", "\n")
        texts = ["x" * 37] * before + [f"{'a' * at}x{run}b"]
        assert normalize(texts)[-1] == f"{'a' * at}x{run[:MAX_WHITESPACE_RUN]}b"

    @given(TEXTS)
    @settings(deadline=None)
    def test_nothing_but_whitespace_and_nuls_is_lost(self, text: str) -> None:
        drop = f"[\0{WHITE}]"
        assert re.sub(drop, "", normalize([text])[0]) == re.sub(drop, "", text)
        assert len(normalize([text])[0]) <= len(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param("  a  b \n", "a  b", id="outer blanks go, inner ones stay"),
            pytest.param("a\r\nb\r\r\n\r\nc\rd", "a\nb\n\nc\nd", id="line ends"),
            pytest.param("a\0b\0", "ab", id="NULs"),
            pytest.param("a" + " " * 128 + "b", "a" + " " * 128 + "b", id="128 blanks stay"),
            pytest.param("a" + " " * 129 + "b", "a" + " " * 128 + "b", id="129 blanks are cut"),
            pytest.param("a" + "\n\t" * 500 + "b", "a" + "\n\t" * 64 + "b", id="the first 128 of a mixed run stay"),
            pytest.param(" \t\r\n\u3000", "", id="nothing but blanks"),
            pytest.param("e\u0301\ufb01\uf900", "e\u0301\ufb01\uf900", id="Unicode forms stay"),
        ],
    )
    def test_normalization_by_example(self, text: str, expected: str) -> None:
        assert normalize([text]) == [expected]

    def test_twenty_megabytes_of_blanks_take_seconds(self) -> None:
        start = time.monotonic()
        blanks = " " * 20_000_000
        assert normalize(["a" + blanks + "b", blanks]) == ["a" + " " * MAX_WHITESPACE_RUN + "b", ""]
        assert time.monotonic() - start < 20

    @given(st.lists(ANY))
    @settings(deadline=None)
    def test_ids_are_the_hash_of_the_text(self, texts: list[str]) -> None:
        array = pa.array(["before", *texts, "after"], pa.string())[1:-1]
        assert hex_ids(digests(array)).to_pylist() == [identity(text) for text in texts]


class TestDocuments:
    @given(st.lists(st.lists(TEXTS, max_size=6), min_size=1, max_size=4))
    @settings(deadline=None, max_examples=25)
    def test_every_text_comes_out_once(self, files: list[list[str]]) -> None:
        files = [["kept"], *files]
        with tempfile.TemporaryDirectory() as place:
            record, artifact = build(
                Path(place), {f"{n}.jsonl": jsonl(texts) for n, texts in enumerate(files)}, sizes=SMALL
            )
            frame = read_folder(artifact, "documents")
        texts = [text for file in files for text in normalize(file)]
        assert set(frame["text"]) == set(filter(None, texts))
        assert frame["id"].to_list() == sorted(identity(text) for text in frame["text"])
        summary = record.summary
        assert summary["records"] == len(texts)
        assert summary["empty"] == texts.count("")
        assert summary["exact_duplicates"] == len(list(filter(None, texts))) - len(frame)
        assert summary["documents"] == len(frame)
        assert summary["bytes"] == sum(len(text.encode()) for text in frame["text"])

    def test_columns(self, tmp_path: Path) -> None:
        layout = Layout("jsonl", id_field="n", url_field="link", licence_field="rights", keep_fields=("lang",))
        rows = [
            {"text": " a ", "n": 1, "link": "http://a", "rights": "CC0", "lang": "de"},
            {"text": "b", "n": 2},
        ]
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        record, artifact = build(tmp_path, {"a.jsonl": data}, layout=layout)
        frame = read_folder(artifact, "documents")
        assert frame.columns == ["id", "text", "source", "licence", "url", "source_id", "lang"]
        assert frame.sort("text").drop("id").rows() == [
            ("a", "test", "CC0", "http://a", "1", "de"),
            ("b", "test", "MIT", None, "2", None),
        ]
        assert record.summary["licences"] == ["CC0", "MIT"]

    def test_of_equal_documents_the_first_is_kept(self, tmp_path: Path) -> None:
        layout = Layout("jsonl", id_field="n")
        names = ["a.jsonl", "b.jsonl", "c.jsonl"]
        data = [
            b"".join(jsonl_of({"text": f"{i}", "n": f"{name} {i} {k}"} for i in range(99) for k in (1, 2)))
            for name in names
        ]
        record, artifact = build(tmp_path, dict(zip(names, data, strict=True)), layout=layout, sizes=SMALL)
        frame = read_folder(artifact, "documents")
        assert sorted(frame["source_id"]) == sorted(f"a.jsonl {text} 1" for text in frame["text"])
        assert record.summary["exact_duplicates"] == 99 * 5

    def test_conversations_have_their_messages_and_a_text(self, tmp_path: Path) -> None:
        talks = [
            [{"role": "user", "content": " Hi\r\n"}, {"role": "assistant", "content": 'Zürich "is" nice', "x": 1}],
            [{"role": "assistant", "content": "Hi"}, {"role": "assistant", "content": 'Zürich "is" nice'}],
            [{"role": "user", "content": " "}],
            [],
        ]
        data = b"".join(jsonl_of({"messages": talk} for talk in talks))
        record, artifact = build(tmp_path, {"a.jsonl": data}, layout=Layout("jsonl", messages_field="messages"))
        frame = read_folder(artifact, "documents")
        assert frame.columns == ["id", "text", "source", "licence", "messages"]
        assert frame["text"].to_list() == ['Hi\n\nZürich "is" nice'] * 2
        assert [identity(messages) for messages in frame["messages"]] == frame["id"].to_list()
        first = next(messages for messages in frame["messages"] if "user" in messages)
        assert first == '[{"role":"user","content":"Hi"},{"role":"assistant","content":"Zürich \\"is\\" nice"}]'
        assert record.summary["empty"] == 2

    @pytest.mark.parametrize("format_", ["parquet", "jsonl"])
    def test_the_format_of_raw_files_does_not_show(self, tmp_path: Path, format_: Literal["parquet", "jsonl"]) -> None:
        texts = [f"text {number}" for number in range(500)]
        table = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": texts}), table)
        data = {
            "parquet": {"a.parquet": table.getvalue().to_pybytes()},
            "jsonl": {"a.jsonl.gz": gzip.compress(jsonl(texts))},
        }
        record, _ = build(tmp_path, data[format_], layout=Layout(format_))
        plain, _ = build(tmp_path / "plain", {"a.jsonl": jsonl(texts)})
        assert parts_of(record) == parts_of(plain)

    def test_many_small_files_are_read_together(self, tmp_path: Path) -> None:
        files = {f"{number:03d}.txt": f"text {number}".encode() for number in range(300)}
        record, artifact = build(tmp_path, files, layout=Layout("text"))
        assert record.summary["files"] == record.summary["documents"] == 300
        frame = read_folder(artifact, "documents")
        assert set(frame["source_id"]) == {f"files/{name}" for name in files}


class TestRejects:
    def test_what_cannot_be_read_is_kept_and_counted(self, tmp_path: Path) -> None:
        files = {
            "a.jsonl": b"bad\n" + jsonl([f"text {n}" for n in range(500)]),
            "b.jsonl": jsonl([f"text {n}" for n in range(500, 1_000)]) + b'{"text": 5}\n',
        }
        record, artifact = build(tmp_path, files, sizes=SMALL)
        summary = record.summary
        assert summary["rejected"] == {"broken_json": 1, "text_not_string": 1}
        assert summary["records"] == 1_002 and summary["retention"] == 1_000 / 1_002
        rejects = pl.read_parquet(artifact.read(REJECTS))
        assert rejects.select("file", "position", "kind", "sample").rows() == [
            ("files/a.jsonl", 1, "broken_json", "bad"),
            ("files/b.jsonl", 501, "text_not_string", '{"text": 5}'),
        ]

    def test_there_is_a_table_of_rejects_even_if_it_is_empty(self, tmp_path: Path) -> None:
        _, artifact = build(tmp_path, {"a.jsonl": jsonl(["a"])})
        assert pl.read_parquet(artifact.read(REJECTS)).is_empty()

    def test_too_many_rejects_fail_the_source(self, tmp_path: Path) -> None:
        data = jsonl([str(n) for n in range(96)]) + b"bad\nworse\n{}\n\xff\n"
        message = refusal(tmp_path, {"a.jsonl": data})
        assert message.startswith("source 'test': 4.00% could not be read (4 of 100 records")
        assert "2 broken_json, 1 invalid_utf8, 1 no_text" in message and "max_reject_share is 1.00%" in message
        path = re.search(r"see (\S+),", message)
        assert path and len(pl.read_parquet(path[1])) == 4
        build(tmp_path, {"a.jsonl": data}, curation=Curation(max_reject_share=0.04))

    def test_the_rest_of_a_file_counts_by_its_bytes(self, tmp_path: Path) -> None:
        good = gzip.compress(jsonl([hashlib.sha256(bytes([n // 256, n % 256])).hexdigest() for n in range(5_000)]))
        damaged = good[: len(good) // 2] + b"\xff" * 200 + good[len(good) // 2 + 200 :]
        message = refusal(tmp_path, {"a.jsonl.gz": damaged})
        share = re.search(r"(\d+\.\d+)% could not be read", message)
        assert share and float(share[1]) > 40
        assert "1 damaged" in message

    def test_nothing_left_fails_the_source(self, tmp_path: Path) -> None:
        assert refusal(tmp_path, {"a.jsonl": jsonl([" ", ""])}) == (
            "source 'test' has no documents left: 2 records came in, 2 of them empty; correct its origin or layout"
        )

    def test_a_source_without_files_is_refused(self, tmp_path: Path) -> None:
        assert "source 'test'" in refusal(tmp_path, {})

    def test_damage_in_the_store_is_no_fault_of_the_source(self, tmp_path: Path) -> None:
        raw = commit_raw(Store(str(tmp_path)), {"a.jsonl.gz": gzip.compress(jsonl(map(str, range(1_000))))})
        path = Path(raw.path("files/a.jsonl.gz"))
        path.write_bytes(path.read_bytes()[:-500])
        message = refusal(tmp_path, None, curation=Curation(max_reject_share=1.0))
        assert message.startswith(f"{path} is damaged: its bytes are not those that were committed; delete the folder")


class TestBytes:
    def test_the_plan_depends_on_names_and_sizes_alone(self) -> None:
        source = dataclasses.replace(SOURCE, layout=Layout("parquet"))
        assert count_parts(source, [RawFile("a.parquet", 10)]) == 1
        assert count_parts(source, [RawFile("a.parquet", SIZES.part)] * 10) == 25
        assert count_parts(SOURCE, [RawFile("a.jsonl", SIZES.part)] * 10) == 10
        assert count_parts(SOURCE, [RawFile("a.jsonl.gz", SIZES.part)] * 10) == 30
        files = [RawFile(str(n), size << 20) for n, size in enumerate([1, 2, 100, 1, 31, 1])]
        assert [[file.path for file in group] for group in group_files(files)] == [["0", "1"], ["2"], ["3", "4"], ["5"]]

    @pytest.mark.parametrize("world", [1, 2, 5])
    def test_any_number_of_ranks_writes_the_same_bytes(self, tmp_path: Path, world: int) -> None:
        raw = commit_raw(Store(str(tmp_path)), mixed_files())
        assert len(parts_of(normalized(raw, tmp_path, world=world))) > 3
        assert normalized(raw, tmp_path, world=world).content == whole_content()

    def test_parts_passes_and_row_groups_are_contiguous_ranges_of_ids(self, tmp_path: Path) -> None:
        record, artifact = build(tmp_path, mixed_files(), sizes=SMALL)
        ids: list[str] = []
        for path in parts_of(record):
            found = pq.ParquetFile(artifact.open(path))
            assert found.num_row_groups > 1
            ids += found.read()["id"].to_pylist()
        assert ids == sorted(set(ids))
        one, _ = build(tmp_path / "one", mixed_files())
        assert len(parts_of(one)) == 1 and one.summary["documents"] == len(ids)
        assert one.summary == record.summary

    def test_a_part_is_the_same_in_one_pass_and_in_many(self, tmp_path: Path) -> None:
        many, _ = build(tmp_path / "many", mixed_files(), sizes=dataclasses.replace(SMALL, pass_=700))
        once, _ = build(tmp_path / "once", mixed_files(), sizes=dataclasses.replace(SMALL, pass_=1 << 30))
        assert many.content == once.content

    def test_other_order_of_files_keeps_the_same_texts(self, tmp_path: Path) -> None:
        files = mixed_files()
        renamed = {f"{9 - n}.jsonl": data for n, data in enumerate(files.values())}
        columns = [
            read_folder(build(tmp_path / str(k), f, sizes=SMALL)[1], "documents")
            for k, f in enumerate((files, renamed))
        ]
        assert columns[0].select("id", "text").equals(columns[1].select("id", "text"))

    @pytest.mark.parametrize("opened", [1, 5, 11, 16, 24])
    def test_a_killed_process_is_continued_with_the_same_bytes(self, tmp_path: Path, opened: int) -> None:
        raw = commit_raw(Store(str(tmp_path)), mixed_files())
        command = [sys.executable, "-c", KILLED_AT_OPEN, str(tmp_path), str(opened)]
        victim = subprocess.run(command, capture_output=True, text=True, check=False)
        assert victim.returncode == -signal.SIGKILL, victim.stderr
        assert normalized(raw, tmp_path).content == whole_content()


# Kills itself when it opens a file for the n-th time, with whatever is half written then.
KILLED_AT_OPEN = """
import os, signal, sys
from tests.data.test_normalize import *
store = Store(sys.argv[1])
with store.writer(NORMALIZED, resumable=True) as writer:
    left, open_file = [int(sys.argv[2])], writer._open
    def open_or_die(url, mode):
        left[0] -= "w" in mode
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return open_file(url, mode)
    writer._open = open_or_die
    run_stage(normalize_stage(SOURCE, store.artifact(RAW), writer, print, SMALL), writer)
"""


def normalize(texts: Sequence[str]) -> list[str]:
    return normalize_texts(pa.array(texts, pa.string())).to_pylist()


def jsonl_of(records: Iterable[Mapping[str, Any]]) -> list[bytes]:
    return [json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records]


def jsonl(texts: Iterable[str]) -> bytes:
    return b"".join(jsonl_of({"text": text} for text in texts))


def mixed_files() -> dict[str, bytes]:
    """Some files with empty documents, duplicates within and across, and a few rejects."""
    files = {}
    for number in range(4):
        texts = [f"text {k % 150} " + "word " * (k % 17) for k in range(number * 40, number * 40 + 120)]
        files[f"{number}.jsonl"] = jsonl([*texts, "", texts[0]]) + (b"bad\n" if number % 3 == 0 else b"")
    return files


_WHOLE: list[str] = []


def whole_content() -> str:
    """What `mixed_files` come to in one process."""
    if not _WHOLE:
        with tempfile.TemporaryDirectory() as place:
            _WHOLE.append(build(Path(place), mixed_files(), sizes=SMALL)[0].content)
    return _WHOLE[0]


def commit_raw(store: Store, files: Mapping[str, bytes]) -> Artifact:
    entries = []
    with store.writer(RAW) as writer:
        if writer.committed is None:
            for name, data in sorted(files.items()):
                with writer.open(f"files/{name}") as file:
                    file.write(data)
                digest = hashlib.sha256(data).hexdigest()
                entries.append({"path": f"files/{name}", "origin": None, "bytes": len(data), "sha256": digest})
            writer.write_json("manifest.json", {"revision": None, "files": entries})
            writer.commit({})
    return store.artifact(RAW)


def normalized(
    raw: Artifact, place: Path, source: Source = SOURCE, sizes: Sizes = SMALL, world: int = 1
) -> ArtifactRecord:
    store = Store(str(place))
    with store.writer(NORMALIZED, resumable=True) as writer:
        if writer.committed is not None:
            return writer.committed
        stage = normalize_stage(source, raw, writer, print, sizes)
        return writer.commit(run_as_ranks(stage, writer, world) if world > 1 else run_stage(stage, writer))


def build(
    place: Path,
    files: Mapping[str, bytes],
    layout: Layout = SOURCE.layout,
    curation: Curation = LENIENT,
    sizes: Sizes = SIZES,
) -> tuple[ArtifactRecord, Artifact]:
    raw = commit_raw(Store(str(place)), files)
    source = dataclasses.replace(SOURCE, layout=layout, curation=curation)
    record = normalized(raw, place, source, sizes)
    return record, Store(str(place)).artifact(NORMALIZED)


def refusal(place: Path, files: Mapping[str, bytes] | None, curation: Curation = SOURCE.curation) -> str:
    """The one line that a source is refused with."""
    store = Store(str(place))
    raw = store.artifact(RAW) if files is None else commit_raw(store, files)
    with pytest.raises(MarinError) as refused:
        normalized(raw, place, dataclasses.replace(SOURCE, curation=curation))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def parts_of(record: ArtifactRecord) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in record.files if entry.path.startswith("documents/")}
