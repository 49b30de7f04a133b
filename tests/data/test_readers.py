"""Readers: what is read of whole files, and that of damaged ones nothing is lost silently and nothing else suffers."""

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from marin_core.data.readers import MAX_RECORD_BYTES, batch_schema, columns_of, compression_of, read_batches
from marin_core.data.readers.html import html_text
from marin_core.data.readers.jsonl import read_jsonl
from marin_core.data.readers.rejects import FileRejects, Rejects, write_rejects
from marin_core.data.sources.declaration import Layout
from marin_core.errors import MarinError

JSONL, PARQUET, WARC, TEXT = Layout("jsonl"), Layout("parquet"), Layout("warc"), Layout("text")
FULL = Layout("jsonl", id_field="id", url_field="link", licence_field="rights", keep_fields=("score",))
CHAT = Layout("jsonl", messages_field="messages")
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
MANY = [f"text {number} " + "word " * (number % 50) for number in range(5_000)]
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=20)


@dataclass
class Reading:
    """What came of a file."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    unread: int = 0

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows]

    @property
    def kinds(self) -> list[tuple[int, str]]:
        return [(row["position"], row["kind"]) for row in self.rejected]


def read(data: bytes, name: str, layout: Layout) -> Reading:
    spill = io.BytesIO()
    spill.close = lambda: None
    with Rejects(lambda: spill) as rejects:
        batches = list(read_batches(io.BytesIO(data), name, layout, FileRejects(rejects, name, len(data))))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == batch_schema(layout)
    gathered = io.BytesIO()
    write_rejects([io.BytesIO(spill.getvalue())] if rejects.counts else [], gathered)
    rejected = pl.read_parquet(gathered.getvalue()).to_dicts()
    assert len(rejected) == rejects.counts.total()
    return Reading([row for batch in batches for row in batch.to_pylist()], rejected, rejects.unread_bytes)


def lines(records: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def warc(
    bodies: Iterable[bytes], content_type: str = "text/html", status: str = "200 OK", *, zipped: bool = False
) -> bytes:
    file = io.BytesIO()
    writer = WARCWriter(file, gzip=zipped)
    for number, body in enumerate(bodies):
        headers = StatusAndHeaders(status, [("Content-Type", content_type)], protocol="HTTP/1.1")
        uri = f"http://example.org/{number}"
        writer.write_record(writer.create_warc_record(uri, "response", payload=io.BytesIO(body), http_headers=headers))
    return file.getvalue()


class TestWholeFiles:
    @pytest.mark.parametrize("suffix", COMPRESSORS)
    def test_compressed_lines_are_read_in_order(self, suffix: str) -> None:
        data = COMPRESSORS[suffix](lines({"text": text} for text in MANY))
        found = read(data, f"a.jsonl{suffix}", JSONL)
        assert found.texts == MANY and not found.rejected

    @pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix])
    def test_members_in_a_row_are_one_file(self, suffix: str) -> None:
        members = [COMPRESSORS[suffix](lines([{"text": text}])) for text in ("a", "b")]
        members.insert(1, COMPRESSORS[suffix](b""))
        assert read(b"".join(members), f"a.jsonl{suffix}", JSONL).texts == ["a", "b"]

    @given(TEXTS)
    @settings(deadline=None)
    def test_every_string_survives_json_and_parquet(self, texts: list[str]) -> None:
        by_line = read(lines({"text": text} for text in texts), "a.jsonl", JSONL)
        by_row = read(parquet({"text": pa.array(texts, pa.string())}), "a.parquet", PARQUET)
        assert by_line.texts == by_row.texts == texts
        assert not by_line.rejected and not by_row.rejected

    @given(TEXTS, st.lists(st.integers(0, 2_000), max_size=10), st.booleans())
    @settings(deadline=None)
    def test_chunk_bounds_do_not_matter(self, texts: list[str], cuts: list[int], ended: bool) -> None:
        data = b"\xef\xbb\xbf" + lines({"text": text} for text in texts)
        data = data if ended else data.rstrip(b"\n")
        bounds = [0, *sorted(cut for cut in cuts if 3 <= cut < len(data)), len(data)]
        chunks = [data[start:end] for start, end in pairwise(bounds) if start < end]
        with Rejects(io.BytesIO) as rejects:
            batches = list(read_jsonl(chunks, JSONL, FileRejects(rejects, "a", len(data))))
        assert [text for batch in batches for text in batch["text"].to_pylist()] == texts

    def test_optional_fields_become_strings(self) -> None:
        records = [
            {"text": "a", "id": 7, "link": "http://a", "rights": "MIT", "score": 0.5, "other": {"x": [1]}},
            {"text": "b", "id": 8, "link": None, "score": 3},
            {"text": "c", "id": 9, "score": 0.25, "rights": None},
        ]
        expected = [
            {"text": "a", "url": "http://a", "source_id": "7", "licence": "MIT", "score": "0.5"},
            {"text": "b", "url": None, "source_id": "8", "licence": None, "score": "3"},
            {"text": "c", "url": None, "source_id": "9", "licence": None, "score": "0.25"},
        ]
        assert read(lines(records), "a.jsonl", FULL).rows == expected
        columns = {key: [record.get(key) for record in records] for key in ("text", "id", "link", "rights", "score")}
        layout = Layout("parquet", id_field="id", url_field="link", licence_field="rights", keep_fields=("score",))
        assert read(parquet(columns), "a.parquet", layout).rows == expected

    @pytest.mark.parametrize("value", [[1, 2], {"b": 1, "a": "é"}, True, 2**70, 1e300])
    def test_a_kept_value_of_any_type_is_json(self, value: Any) -> None:
        found = read(lines([{"text": "a", "score": value}]), "a.jsonl", Layout("jsonl", keep_fields=("score",)))
        assert json.loads(found.rows[0]["score"]) == value

    @given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(1e-6, 1e12) | st.integers(-(2**60), 2**60))
    @settings(deadline=None)
    def test_numbers_are_the_same_text_next_to_a_bad_line(self, number: float) -> None:
        layout = Layout("jsonl", keep_fields=("score",))
        good = lines([{"text": "a", "score": number}])
        assert read(good, "a.jsonl", layout).rows == read(good + b"bad\n", "a.jsonl", layout).rows

    def test_a_kept_field_may_be_missing_or_of_several_types(self) -> None:
        layout = Layout("jsonl", keep_fields=("score",))
        records = [{"text": "a"}, {"text": "b", "score": 1}, {"text": "c", "score": "x"}, {"text": "d", "score": [1]}]
        assert [row["score"] for row in read(lines(records), "a.jsonl", layout).rows] == [None, "1", "x", "[1]"]

    def test_a_kept_field_must_not_hide_a_column(self) -> None:
        with pytest.raises(MarinError, match=r"keep_fields has id, url.*declare url_field"):
            columns_of(Layout("jsonl", keep_fields=("id", "url", "score")))

    @pytest.mark.parametrize(
        "type_", [pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
    )
    def test_text_columns_of_any_string_type_are_read(self, type_: pa.DataType) -> None:
        assert read(parquet({"text": pa.array(["a", "é"]).cast(type_)}), "a.parquet", PARQUET).texts == ["a", "é"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (pa.array([b"a", None], pa.binary()), ["a", None]),
            (pa.array([1, None], pa.int8()), ["1", None]),
            (pa.array([True, False]), ["true", "false"]),
            (pa.array([0, 1], pa.timestamp("ms")), ["1970-01-01 00:00:00.000", "1970-01-01 00:00:00.001"]),
            (pa.array([[1], [2, 3]]), ["[1]", "[2, 3]"]),
            (pa.array([{"a": "é"}, None]), ['{"a": "é"}', None]),
            (pa.array([None, None]), [None, None]),
            (pa.array([1, 2], pa.duration("s")), ["1", "2"]),
        ],
        ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
    )
    def test_columns_of_any_type_become_strings(self, values: pa.Array, expected: list[str | None]) -> None:
        data = parquet({"text": ["a", "b"], "x": values})
        found = read(data, "a.parquet", Layout("parquet", keep_fields=("x",)))
        assert [row["x"] for row in found.rows] == expected

    def test_a_field_may_be_text_and_kept(self) -> None:
        layout = Layout("jsonl", text_field="content", keep_fields=("content",))
        found = read(lines([{"content": "a"}, {"content": 1}]), "a.jsonl", layout)
        assert found.rows == [{"text": "a", "content": "a"}] and found.kinds == [(2, "text_not_string")]

    def test_batches_are_small_whatever_the_file_is(self) -> None:
        texts = ["x" * 10_000] * 4_000
        files = [(lines({"text": text} for text in texts), JSONL)]
        files += [(parquet({"text": texts}, use_dictionary=repeated), PARQUET) for repeated in (True, False)]
        for data, layout in files:
            with Rejects(io.BytesIO) as rejects:
                batches = list(read_batches(io.BytesIO(data), "a", layout, FileRejects(rejects, "a", len(data))))
            assert sum(map(len, batches)) == 4_000
            assert max(batch.nbytes for batch in batches) < 20_000_000

    def test_a_text_file_is_a_document(self) -> None:
        assert read("\ufeffZürich\n".encode(), "a/b.txt", TEXT).rows == [{"text": "Zürich\n", "source_id": "a/b.txt"}]

    def test_conversations_are_roles_and_contents(self) -> None:
        talk = [{"role": "user", "content": "Hi", "weight": 1}, {"content": "Ho", "role": "assistant"}]
        expected = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
        assert read(lines([{"messages": talk}]), "a.jsonl", CHAT).rows == [{"messages": expected}]
        layout = Layout("parquet", messages_field="messages")
        assert read(parquet({"messages": [talk, []]}), "a", layout).rows == [{"messages": expected}, {"messages": []}]


class TestWebPages:
    @pytest.mark.parametrize("zipped", [False, True])
    def test_pages_become_text_with_their_address(self, zipped: bool) -> None:
        data = warc([b"<title>no</title><p>One<br>two</p><script>x</script><pre> a\n  b</pre>"] * 2, zipped=zipped)
        found = read(data, "a.warc.gz" if zipped else "a.warc", WARC)
        assert found.texts == ["One\ntwo\n\n a\n  b"] * 2
        assert [row["url"] for row in found.rows] == ["http://example.org/0", "http://example.org/1"]
        assert all(row["source_id"].startswith("<urn:uuid:") for row in found.rows)

    def test_what_is_no_page_is_no_record(self) -> None:
        assert read(warc([b"x"], status="404 Not Found"), "a.warc", WARC) == Reading()
        assert read(warc([b"x"], content_type="image/png"), "a.warc", WARC) == Reading()

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            ("text/html; charset=iso-8859-1", "<p>Zürich".encode("latin-1")),
            ("text/html", b"<meta charset='shift_jis'><p>" + "日本".encode("shift_jis")),
            ("text/html", "<p>Zürich".encode("windows-1252")),
            ("text/html; charset=nonsense", "<p>Zürich".encode()),
            ("text/plain", "Zürich".encode()),
        ],
    )
    def test_charsets(self, content_type: str, body: bytes) -> None:
        assert read(warc([body], content_type), "a.warc", WARC).texts in (["Zürich"], ["日本"])

    @pytest.mark.parametrize(
        ("html", "text"),
        [
            ("<head><title>t</title><body><p>a  b\n c</p><p>d", "a b c\n\nd"),
            ("<nav>menu</nav><main>a<script>if (1 < 2) x</script>b</main><footer>f</footer>", "ab"),
            ("<p>a<pre>  x\n    y</pre>b", "a\n\n  x\n    y\nb"),
            ("<article><h1>One</h1><ul><li>a<li>b</ul><p>c &lt;&amp; d</article>", "One\n\n  • a\n  • b\n\nc <& d"),
            ("", ""),
            ("no tags & more", "no tags & more"),
        ],
    )
    def test_html_by_example(self, html: str, text: str) -> None:
        assert html_text(html) == text

    @given(st.text(alphabet="<>/pre div!-&;#x1\n a\"'", max_size=200))
    @settings(deadline=None)
    def test_any_html_gives_some_text(self, html: str) -> None:
        html_text(html)


BAD_LINES = [
    pytest.param(b'{"text": "a', "broken_json", id="cut off"),
    pytest.param(b"not json", "broken_json", id="no JSON"),
    pytest.param(b'{"text": "a"} {"text": "b"}', "broken_json", id="two objects"),
    pytest.param(b"[1]", "broken_json", id="a list"),
    pytest.param(b"[" * 100_000, "broken_json", id="deep"),
    pytest.param(b'{"text": "a\x00b"}', "broken_json", id="a NUL byte"),
    pytest.param(b'{"text": "\xff\xfe"}', "invalid_utf8", id="no UTF-8"),
    pytest.param(b'{"text": "a", "x": "\xff"}', "invalid_utf8", id="no UTF-8 elsewhere"),
    pytest.param(b'{"text": "\\ud800"}', "invalid_utf8", id="half a surrogate pair"),
    pytest.param(b'{"other": "a"}', "no_text", id="no text"),
    pytest.param(b'{"text": null}', "no_text", id="null"),
    pytest.param(b'{"text": 5}', "text_not_string", id="a number"),
    pytest.param(b'{"text": ["a"]}', "text_not_string", id="a list of texts"),
]


class TestBadRecords:
    @pytest.mark.parametrize(("line", "kind"), BAD_LINES)
    def test_a_bad_line_is_rejected_and_costs_nothing_else(self, line: bytes, kind: str) -> None:
        good = lines({"text": text, "id": 1, "score": 0.1} for text in MANY).splitlines(keepends=True)
        data = b"".join([*good[:1_000], line + b"\n", *good[1_000:]])
        found = read(data, "a.jsonl", FULL)
        assert found.rows == read(b"".join(good), "a.jsonl", FULL).rows
        assert found.kinds == [(1_001, kind)]
        sample = found.rejected[0]["sample"]
        assert sample == line[:800].decode(errors="replace")[:200]
        assert found.unread == 0

    def test_empty_lines_are_no_records(self) -> None:
        found = read(b'\n{"text": "a"}\n\n \n{"text": "b"}\n\nbad\n', "a.jsonl", JSONL)
        assert found.texts == ["a", "b"] and found.kinds == [(7, "broken_json")]

    def test_a_nul_escape_is_text(self) -> None:
        assert read(b'{"text": "a\\u0000b"}\n', "a.jsonl", JSONL).texts == ["a\0b"]

    @given(st.lists(st.sampled_from([b'{"text": "a"}', b'{"text": 5}', b"", b"{}", b"x", b'{"text": "b", "n": NaN}'])))
    @settings(deadline=None)
    def test_every_line_is_read_rejected_or_empty(self, chosen: list[bytes]) -> None:
        found = read(b"\n".join(chosen), "a.jsonl", JSONL)
        assert len(found.rows) + len(found.rejected) == sum(map(bool, chosen))
        assert len(found.rows) == sum(b'"a"' in line or b'"b"' in line for line in chosen)
        for position, _ in found.kinds:
            assert chosen[position - 1] in (b'{"text": 5}', b"{}", b"x")

    def test_a_line_without_end_is_rejected_without_being_kept(self) -> None:
        def chunks() -> Iterable[bytes]:
            yield b'{"text": "a"}\n{"text": "'
            for _ in range(100):
                yield b"x" * 1_000_000
            yield b'"}\n{"text": "b"}\n'

        spill = io.BytesIO()
        with Rejects(lambda: spill) as rejects:
            batches = list(read_jsonl(chunks(), JSONL, FileRejects(rejects, "a", 1)))
        assert [text for batch in batches for text in batch["text"].to_pylist()] == ["a", "b"]
        assert rejects.counts == {"oversized": 1}

    def test_rows_without_a_usable_text_are_rejected(self) -> None:
        texts = pa.array([b"a", None, b"\xff", b"b", b"x" * (MAX_RECORD_BYTES + 1), b"c"], pa.binary())
        found = read(parquet({"text": texts.view(pa.string())}), "a.parquet", PARQUET)
        assert found.texts == ["a", "b", "c"]
        assert found.kinds == [(1, "no_text"), (2, "invalid_utf8"), (4, "oversized")]

    @pytest.mark.parametrize(
        "messages",
        [
            "Hi",
            {"role": "user", "content": "Hi"},
            ["Hi"],
            [{"role": "user"}],
            [{"role": "user", "content": None}],
            [{"role": "user", "content": [{"type": "text"}]}],
            [None],
        ],
    )
    def test_messages_must_have_role_and_content(self, messages: Any) -> None:
        good = [{"role": "user", "content": "Hi"}]
        found = read(lines([{"messages": good}, {"messages": messages}, {}]), "a.jsonl", CHAT)
        assert found.rows == [{"messages": good}]
        assert found.kinds == [(2, "bad_messages"), (3, "no_text")]

    def test_messages_of_a_table_must_have_role_and_content(self) -> None:
        column = [[{"role": "user", "content": "Hi"}], None, [{"role": None, "content": "Hi"}]]
        found = read(parquet({"messages": column}), "a", Layout("parquet", messages_field="messages"))
        assert len(found.rows) == 1 and found.kinds == [(1, "no_text"), (2, "bad_messages")]

    def test_text_files_that_are_no_text(self) -> None:
        assert read(b"a\xff", "a.txt", TEXT).kinds == [(0, "invalid_utf8")]
        assert read(b"x" * (MAX_RECORD_BYTES + 1), "a.txt", TEXT).kinds == [(0, "oversized")]


class TestDamagedFiles:
    @pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix])
    def test_all_before_a_cut_is_read(self, suffix: str) -> None:
        data = COMPRESSORS[suffix](lines({"text": text} for text in MANY))
        found = read(data[: len(data) * 9 // 10], f"a.jsonl{suffix}", JSONL)
        assert found.texts == MANY[: len(found.texts)]
        if suffix in (".gz", ".xz"):  # bz2 and zstd have blocks that are read whole or not at all
            assert len(found.texts) > len(MANY) // 2
        assert found.kinds == [(len(found.texts) + 1, "truncated")]

    @pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix])
    def test_garbage_after_the_end_is_one_reject(self, suffix: str) -> None:
        data = COMPRESSORS[suffix](lines({"text": text} for text in MANY))
        found = read(data + b"garbage", f"a.jsonl{suffix}", JSONL)
        assert found.texts == MANY
        assert found.kinds == [(len(MANY) + 1, "trailing_garbage")] and found.unread == 7

    @pytest.mark.parametrize("suffix", [".gz", ".xz"])
    def test_zeros_after_the_end_are_nothing(self, suffix: str) -> None:
        data = COMPRESSORS[suffix](lines([{"text": "a"}]))
        assert read(data + bytes(10_000), f"a.jsonl{suffix}", JSONL) == Reading([{"text": "a"}])

    @pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix])
    @pytest.mark.parametrize("data", [b"", b"\x1f", b"not compressed at all\n"], ids=["empty", "a byte", "plain"])
    def test_a_file_that_is_not_compressed_is_one_reject(self, suffix: str, data: bytes) -> None:
        found = read(data, f"a.jsonl{suffix}", JSONL)
        assert not found.rows and len(found.rejected) == 1
        assert found.unread == (len(data) if len(data) > 1 else found.unread)

    def test_a_wrong_checksum_puts_the_whole_member_in_doubt(self) -> None:
        data = bytearray(gzip.compress(lines({"text": text} for text in MANY)))
        data[-8] ^= 1
        assert read(bytes(data), "a.jsonl.gz", JSONL).unread == len(data)

    @pytest.mark.parametrize(
        "damage", [lambda data: data[:-1_000], lambda data: data[: len(data) // 2], lambda data: b""]
    )
    def test_a_table_without_footer_is_lost_whole(self, damage: Callable[[bytes], bytes]) -> None:
        data = damage(parquet({"text": MANY}))
        found = read(data, "a.parquet", PARQUET)
        assert not found.rows and found.kinds == [(0, "damaged")] and found.unread == len(data)

    @pytest.mark.parametrize("columns", [{"other": ["a"]}, {"text": [1]}, {"text": [["a"]]}])
    def test_a_table_of_another_schema_is_one_reject(self, columns: dict[str, Any]) -> None:
        data = parquet(columns)
        found = read(data, "a.parquet", PARQUET)
        assert found.kinds == [(0, "schema")] and found.unread == len(data)
        assert "column 'text'" in found.rejected[0]["reason"]

    def test_a_damaged_row_group_does_not_take_the_others_with_it(self) -> None:
        data = bytearray(parquet({"text": MANY}, row_group_size=1_000, compression="zstd", use_dictionary=False))
        group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(2).column(0)
        start = group.data_page_offset
        data[start : start + group.total_compressed_size] = bytes(group.total_compressed_size)
        found = read(bytes(data), "a.parquet", PARQUET)
        assert found.texts == MANY[:2_000] + MANY[3_000:]
        assert found.kinds == [(2_000, "damaged")] and found.unread == group.total_compressed_size

    def test_all_before_the_damage_of_a_web_archive_is_read(self) -> None:
        data = warc([b"<p>a" * 100] * 3)
        cut = read(data[:-300], "a.warc", WARC)
        assert len(cut.rows) == 2 and cut.kinds == [(2, "truncated")]
        garbage = read(data + b"garbage\n" * 9, "a.warc", WARC)
        assert len(garbage.rows) == 3 and [kind for _, kind in garbage.kinds] == ["damaged"]
        assert [kind for _, kind in read(b"garbage", "a.warc", WARC).kinds] == ["damaged"]
        zipped = warc([b"<p>a" * 100] * 3, zipped=True)
        assert len(read(zipped[:-100], "a.warc.gz", WARC).rows) == 2

    @given(st.data())
    @settings(deadline=None, max_examples=60)
    def test_no_damage_raises(self, data: st.DataObject) -> None:
        name, layout, whole = data.draw(st.sampled_from(DAMAGEABLE))
        start = data.draw(st.integers(0, len(whole) - 1))
        garbage = data.draw(st.binary(max_size=30))
        found = read(whole[:start] + garbage + whole[start + data.draw(st.integers(0, 40)) :], name, layout)
        assert len(found.rows) <= 200

    def test_what_the_file_system_says_is_no_reject(self, tmp_path: Path) -> None:
        class Broken(io.RawIOBase):
            def readable(self) -> bool:
                return True

            def seekable(self) -> bool:
                return True

            def seek(self, *place: int) -> int:
                return 10_000

            def readinto(self, buffer: Any) -> int:
                raise OSError(5, "Input/output error")

        for name, layout in (("a.jsonl", JSONL), ("a.jsonl.bz2", JSONL), ("a", PARQUET), ("a.warc", WARC)):
            with Rejects(io.BytesIO) as rejects, pytest.raises(OSError, match="Input/output error"):
                list(read_batches(io.BufferedReader(Broken()), name, layout, FileRejects(rejects, "a", 9)))
            assert not rejects.counts


DAMAGEABLE = [
    ("a.jsonl", JSONL, lines({"text": text} for text in MANY[:100])),
    *(
        (f"a.jsonl{suffix}", FULL, COMPRESSORS[suffix](lines({"text": text} for text in MANY[:100])))
        for suffix in COMPRESSORS
    ),
    ("a.parquet", PARQUET, parquet({"text": MANY[:100]}, row_group_size=20, compression="zstd")),
    (
        "a.parquet",
        Layout("parquet", url_field="u", keep_fields=("n",)),
        parquet({"text": MANY[:100], "u": MANY[100:200], "n": [[1.5]] * 100}, compression="none"),
    ),
    ("a.warc", WARC, warc([b"<p>a" * 10] * 5)),
    ("a.warc.gz", WARC, warc([b"<p>a" * 10] * 5, zipped=True)),
    ("a.txt.gz", TEXT, gzip.compress(b"text " * 50)),
]


class TestArrays:
    ARRAY = Layout("json")

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_texts_and_objects_are_records(self, suffix: str) -> None:
        data = COMPRESSORS[suffix](json.dumps(["one", {"text": "two"}, "three"]).encode())
        assert read(data, f"a.json{suffix}", self.ARRAY).texts == ["one", "two", "three"]

    def test_the_position_of_a_bad_element_is_its_number(self) -> None:
        found = read(json.dumps(["one", 2, {"words": "three"}, "four"]).encode(), "a.json", self.ARRAY)
        assert found.texts == ["one", "four"]
        assert found.kinds == [(2, "text_not_string"), (3, "no_text")]

    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (b'["one", "tw', "broken_json"),
            (b'{"text": "one"}', "schema"),
            (b'["\xff"]', "invalid_utf8"),
            (b"", "broken_json"),
        ],
    )
    def test_what_is_no_array_is_lost_whole_and_said(self, data: bytes, kind: str) -> None:
        found = read(data, "a.json", self.ARRAY)
        assert not found.rows
        assert found.kinds == [(0, kind)]
        assert found.unread == len(data)


def test_compression_is_told_by_the_name() -> None:
    assert [compression_of(name) for name in ("a.jsonl", "a.parquet", "a.gz", "a.b.zst")] == [None, None, ".gz", ".zst"]
