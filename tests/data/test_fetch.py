"""Files by URL: what an origin names, and that a file arrives whole whatever the server can and cannot do."""

import base64
import errno
import fcntl
import gzip
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.sources.declaration import UrlOrigin
from marin_core.data.sources.fetch import list_urls, open_remote
from marin_core.data.sources.listing import ListedFile
from marin_core.data.sources.patience import Patience
from marin_core.data.sources.transfer import Fetched, transfer
from marin_core.data.sources.web import retry_after
from marin_core.errors import MarinError
from tests.data.hub_server import Fault, HubServer, running

DATA = random.Random(0).randbytes(200_000)
PATIENCE = Patience(attempts=3, first_wait=0.01)


@pytest.fixture
def server() -> Iterator[HubServer]:
    with running(HubServer(web={"a.jsonl": DATA}, web_headers={"ETag": '"one"'})) as server:
        yield server


def fetch(url: str, partial: Path, **known: object) -> Fetched:
    file = ListedFile("a.jsonl", url, **known)  # pyright: ignore[reportArgumentType]
    return transfer(open_remote(url), file, partial, PATIENCE, print, "a.jsonl")


def listed(origin: UrlOrigin) -> list[tuple[str, str, int | None]]:
    return sorted((file.path, file.origin, file.size) for file in list_urls(origin, PATIENCE, print))


def ranges(server: HubServer) -> list[str | None]:
    return [request.range for request in server.requests_for("a.jsonl")]


def test_a_url_is_its_own_path() -> None:
    origin = UrlOrigin(("https://example.org/data/some%20text.jsonl?download=1",))
    assert [file.path for file in list_urls(origin, PATIENCE, print)] == ["data/some text.jsonl"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_listing_names_files_below_the_base(server: HubServer, compressed: bool) -> None:
    lines = b"part/quality=high/1.jsonl.zst\npart/quality=low/2.jsonl.zst\n\npart/quality=high/3.jsonl.zst\n"
    server.web["paths"] = gzip.compress(lines) if compressed else lines
    origin = UrlOrigin(listings=(f"{server.url}/web/paths",), base="https://example.org/", containing="/quality=high/")
    assert listed(origin) == [
        ("part/quality=high/1.jsonl.zst", "https://example.org/part/quality=high/1.jsonl.zst", None),
        ("part/quality=high/3.jsonl.zst", "https://example.org/part/quality=high/3.jsonl.zst", None),
    ]


def test_a_prefix_names_every_file_below_it(tmp_path: Path) -> None:
    for name in ("in/a.jsonl", "in/deep/b.jsonl", "inside.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    assert listed(UrlOrigin((f"file://{tmp_path}/in/",))) == [
        ("a.jsonl", f"file://{tmp_path}/in/a.jsonl", 5),
        ("deep/b.jsonl", f"file://{tmp_path}/in/deep/b.jsonl", 5),
    ]


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (UrlOrigin(("https://example.org/folder/",)), "a web server does not list https://example.org/folder/"),
        (UrlOrigin(("file:///no/such/folder/",)), "name 0 files and none contains"),
        (UrlOrigin(("https://example.org/a",), containing="b"), "name 1 files and none contains 'b'"),
    ],
)
def test_an_origin_without_files_is_a_one_line_error(origin: UrlOrigin, message: str) -> None:
    with pytest.raises(MarinError, match=message) as refused:
        listed(origin)
    assert "\n" not in str(refused.value)


def test_a_listing_that_is_none_is_a_one_line_error(server: HubServer) -> None:
    server.web["paths"] = b"\x1f\x8bno gzip"
    with pytest.raises(MarinError, match=r"web/paths is no text file of paths"):
        listed(UrlOrigin(listings=(f"{server.url}/web/paths",)))


def test_the_bytes_arrive_and_are_asked_for_uncompressed(server: HubServer, tmp_path: Path) -> None:
    assert fetch(f"{server.url}/web/a.jsonl", tmp_path / "a") == Fetched(len(DATA), hashlib.sha256(DATA).hexdigest())
    assert (tmp_path / "a").read_bytes() == DATA
    assert server.seen[0].headers["accept-encoding"] == "identity"


def test_after_a_break_only_the_rest_is_asked_for_if_the_file_is_the_same(server: HubServer, tmp_path: Path) -> None:
    server.faults["a.jsonl"] = [Fault(cut_at=50_000)]
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA
    assert ranges(server) == [None, "bytes=50000-"]
    assert server.seen[1].headers["if-range"] == '"one"'


def test_a_file_that_changed_meanwhile_is_fetched_from_its_beginning(server: HubServer, tmp_path: Path) -> None:
    server.faults["a.jsonl"] = [Fault(cut_at=50_000)] * 4
    with pytest.raises(MarinError, match="gave up after 3 tries"):
        fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").stat().st_size == 50_000
    server.web["a.jsonl"], server.web_headers["ETag"] = DATA[::-1], '"two"'
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA[::-1]


def test_without_anything_that_tells_versions_apart_a_file_is_fetched_from_its_beginning(
    server: HubServer, tmp_path: Path
) -> None:
    server.web_headers = {}
    server.faults["a.jsonl"] = [Fault(cut_at=50_000)]
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA
    assert ranges(server) == [None, None]


def test_a_server_without_ranges_sends_the_whole_file_again(server: HubServer, tmp_path: Path) -> None:
    server.ranges = False
    server.faults["a.jsonl"] = [Fault(cut_at=50_000)]
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_partial_file_that_is_longer_than_the_servers_is_thrown_away(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA + b"more")
    (tmp_path / "a.json").write_text('{"size": null, "tag": "\\"one\\"", "md5": null}')
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA


MD5 = hashlib.md5(DATA).digest()


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Content-MD5": base64.b64encode(MD5).decode()}, id="Content-MD5"),
        pytest.param({"x-goog-hash": f"crc32c=AAAAAA==,md5={base64.b64encode(MD5).decode()}"}, id="Google"),
        pytest.param({"Server": "AmazonS3", "ETag": f'"{MD5.hex()}"'}, id="S3"),
    ],
)
def test_a_digest_that_the_server_states_is_compared(
    server: HubServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    server.web_headers = headers
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "good")
    server.web["a.jsonl"] = DATA[::-1]
    with pytest.raises(MarinError, match=rf"MD5 \w{{32}}, expected was {MD5.hex()}, 2 times"):
        fetch(f"{server.url}/web/a.jsonl", tmp_path / "bad")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"ETag": f'"{MD5.hex()}"'}, id="another server's tag is not its MD5"),
        pytest.param({"Server": "AmazonS3", "ETag": f'"{MD5.hex()}-2"'}, id="nor that of an upload in parts"),
        pytest.param({"x-goog-hash": f"md5={MD5.hex()}", "x-goog-stored-content-encoding": "gzip"}, id="nor of a gzip"),
    ],
)
def test_what_is_no_digest_of_the_file_is_not_compared(
    server: HubServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    server.web_headers, server.web["a.jsonl"] = headers, DATA[::-1]
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA[::-1]


def test_a_server_that_asks_to_wait_is_waited_for(server: HubServer, tmp_path: Path) -> None:
    server.faults["a.jsonl"] = [Fault(503, {"Retry-After": "1"})]
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    first, second = server.requests_for("a.jsonl")
    assert second.at - first.at >= 1


def test_a_server_that_asks_for_a_day_is_given_up_at_once(server: HubServer, tmp_path: Path) -> None:
    server.faults["a.jsonl"] = [Fault(429, {"Retry-After": "86400"})]
    with pytest.raises(MarinError, match="429 Too Many Requests; it asks to wait 86400 s"):
        fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")


@pytest.mark.parametrize(("status", "advice"), [(404, "check the URL"), (403, "check the credentials")])
def test_a_refusal_is_final(server: HubServer, tmp_path: Path, status: int, advice: str) -> None:
    server.faults["a.jsonl"] = [Fault(status)]
    with pytest.raises(MarinError, match=rf"web/a.jsonl cannot be had: the server answers {status} .*{advice}"):
        fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert len(server.seen) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.jsonl", "http://no-such-host.invalid/a.jsonl"])
def test_no_network_is_one_line_that_says_what_could_not_be_reached(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        MarinError, match=r"a\.jsonl: \S+ cannot be reached: .*Files that are complete are kept"
    ) as refused:
        fetch(url, tmp_path / "a")
    assert "\n" not in str(refused.value)


def test_two_processes_do_not_write_one_file(server: HubServer, tmp_path: Path) -> None:
    with (tmp_path / "a.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MarinError, match="another process is writing "):
            fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    fetch(f"{server.url}/web/a.jsonl", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 999), max_size=6), ranges=st.booleans(), tagged=st.booleans())
def test_a_file_arrives_whole_or_not_at_all_whatever_breaks(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], ranges: bool, tagged: bool
) -> None:
    web_headers = {"ETag": '"one"'} if tagged else {}
    data = DATA[:1000]
    with running(HubServer(web={"a.jsonl": data}, ranges=ranges, web_headers=web_headers)) as server:
        server.faults["a.jsonl"] = [Fault(cut_at=cut) for cut in cuts]
        partial = tmp_path_factory.mktemp("partial") / "a"
        try:
            patience = Patience(attempts=3, first_wait=0)
            url = f"{server.url}/web/a.jsonl"
            transfer(open_remote(url), ListedFile("a.jsonl", url), partial, patience, lambda text: None, "a.jsonl")
        except MarinError:
            assert len(cuts) >= 3
        else:
            assert partial.read_bytes() == data


def test_a_file_of_a_store_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    url = f"file://{tmp_path}/source"
    digest = hashlib.sha256(DATA).hexdigest()
    (tmp_path / "partial").write_bytes(DATA[:1000])
    assert fetch(url, tmp_path / "partial", size=len(DATA), sha256=digest).sha256 == digest
    assert (tmp_path / "partial").read_bytes() == DATA


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_a_full_disk_here_is_not_blamed_on_the_other_end(server: HubServer, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(DATA)
    url = f"file://{tmp_path}/a.jsonl" if scheme == "file" else f"{server.url}/web/a.jsonl"
    with pytest.raises(OSError, match="No space left"), open_remote(url).open(0, None):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"ratelimit": '"api";r=0;t=55'}, 55),
        ({"ratelimit": '"api";r=3;t=55'}, 0),
        ({}, 0),
    ],
)
def test_how_long_a_response_asks_to_wait(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(headers) == seconds
