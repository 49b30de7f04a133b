"""Datasets of a hub: what is listed, what arrives, what the hub is asked for, and what a refusal says."""

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin_core.data.sources.declaration import HubOrigin
from marin_core.data.sources.hub import hub_remote, list_hub
from marin_core.data.sources.listing import ListedFile, Listing
from marin_core.data.sources.patience import Patience
from marin_core.data.sources.transfer import Fetched, transfer
from marin_core.errors import MarinError
from tests.data.hub_server import Dataset, Fault, HubServer, git_sha1, running

LARGE = random.Random(0).randbytes(300_000)
SMALL = b'{"text": "small"}\n'
COMMIT = Dataset({}).commit
ORIGIN = HubOrigin("lab/texts", "main", ("**/*.jsonl",))
PATIENCE = Patience(attempts=3, first_wait=0.01)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    files = {"data/large.jsonl": LARGE, "small.jsonl": SMALL, "README.md": b"# Texts"}
    with running(HubServer({"lab/texts": Dataset(files)})) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        # The token of whoever runs the tests is none of their business.
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        yield server


@pytest.fixture
def fetch(tmp_path: Path) -> Callable[[str], Fetched]:
    """Fetch a file of the dataset to `tmp_path / 'partial'`."""

    def fetch(path: str, origin: HubOrigin = ORIGIN) -> Fetched:
        listing = listed(origin)
        file = next(file for file in listing.files if file.path == path)
        remote = hub_remote(origin, str(listing.revision), path)
        return transfer(remote, file, tmp_path / "partial", PATIENCE, print, path)

    return fetch


def listed(origin: HubOrigin = ORIGIN) -> Listing:
    return list_hub("texts", origin, PATIENCE, print)


@pytest.mark.parametrize("revision", ["main", COMMIT, COMMIT[:7]])
def test_the_listing_has_the_matching_files_at_the_full_commit(hub: HubServer, revision: str) -> None:
    found = listed(HubOrigin("lab/texts", revision, ("**/*.jsonl",)))
    assert found.revision == COMMIT
    assert found.files == (
        ListedFile(
            "data/large.jsonl",
            f"hf://datasets/lab/texts@{COMMIT}/data/large.jsonl",
            len(LARGE),
            sha256=hashlib.sha256(LARGE).hexdigest(),
        ),
        ListedFile(
            "small.jsonl",
            f"hf://datasets/lab/texts@{COMMIT}/small.jsonl",
            len(SMALL),
            git_sha1=git_sha1(SMALL),
        ),
    )


@pytest.mark.parametrize("page_size", [1, 7, 1000])
def test_every_page_of_the_listing_is_read(hub: HubServer, page_size: int) -> None:
    hub.page_size = page_size
    hub.datasets["lab/texts"] = Dataset({f"{number:03d}.jsonl": b"x" for number in range(25)})
    assert [file.path for file in listed().files] == [f"{number:03d}.jsonl" for number in range(25)]
    assert len(hub.requests_for(f"/tree/{COMMIT}")) == -(-26 // page_size)


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        pytest.param(("*.jsonl",), ["small.jsonl"], id="one star stops at a folder"),
        pytest.param(("data/*",), ["data/large.jsonl"], id="a folder"),
        pytest.param(("**/*",), ["README.md", "data/large.jsonl", "small.jsonl"], id="everything"),
        pytest.param(("*.md", "small.*"), ["README.md", "small.jsonl"], id="several"),
    ],
)
def test_globs_choose_files(hub: HubServer, globs: tuple[str, ...], expected: list[str]) -> None:
    assert [file.path for file in listed(HubOrigin("lab/texts", "main", globs)).files] == expected


@pytest.mark.parametrize(("path", "data"), [("data/large.jsonl", LARGE), ("small.jsonl", SMALL)])
def test_the_bytes_arrive(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path, path: str, data: bytes
) -> None:
    assert fetch(path) == Fetched(len(data), hashlib.sha256(data).hexdigest())
    assert (tmp_path / "partial").read_bytes() == data
    assert [request.range for request in hub.requests_for(f"resolve/{COMMIT}/{path}")] == [None]


def test_files_are_asked_for_at_the_commit_even_when_the_branch_moves(
    hub: HubServer, fetch: Callable[[str], Fetched]
) -> None:
    fetch("small.jsonl")
    assert not hub.requests_for("resolve/main/small.jsonl")


@pytest.mark.parametrize("path", ["data/large.jsonl", "small.jsonl"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(cut_at=10), id="connection cut"),
        pytest.param(Fault(cut_at=10, unsaid=True), id="body truncated, of no stated length"),
    ],
)
def test_after_a_break_only_the_rest_is_asked_for(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path, path: str, fault: Fault
) -> None:
    hub.faults[path] = [Fault(), fault] if path.startswith("data/") else [fault]  # past the redirect
    fetch(path)
    assert (tmp_path / "partial").read_bytes() == hub.datasets["lab/texts"].files[path]
    assert [request.range for request in hub.requests_for(f"resolve/{COMMIT}/{path}")] == [None, "bytes=10-"]


def test_an_answer_of_another_length_than_listed_is_not_taken(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path
) -> None:
    hub.faults["small.jsonl"] = [Fault(cut_at=10, short=True)]
    fetch("small.jsonl")
    assert (tmp_path / "partial").read_bytes() == SMALL
    assert [request.range for request in hub.requests_for("small.jsonl")] == [None, None]


def test_a_file_that_breaks_often_but_moves_on_arrives(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path
) -> None:
    hub.faults[hashlib.sha256(LARGE).hexdigest() + "/data/large.jsonl"] = [
        Fault(cut_at=at) for at in range(1000, 9000, 1000)
    ]
    fetch("data/large.jsonl")
    assert (tmp_path / "partial").read_bytes() == LARGE
    assert [request.range for request in hub.requests_for(f"resolve/{COMMIT}/data/large.jsonl")][1:] == [
        f"bytes={at}-" for at in range(1000, 9000, 1000)
    ]


def test_a_later_process_goes_on_from_the_bytes_that_are_there(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path
) -> None:
    (tmp_path / "partial").write_bytes(LARGE[:123_456])
    fetch("data/large.jsonl")
    assert (tmp_path / "partial").read_bytes() == LARGE
    assert [request.range for request in hub.requests_for("/data/large.jsonl")] == ["bytes=123456-"] * 2


@pytest.mark.parametrize("kept", [b"wrong" * 100, LARGE + b"more"], ids=["other bytes", "too many bytes"])
def test_wrong_bytes_of_an_earlier_process_are_thrown_away(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path, kept: bytes
) -> None:
    (tmp_path / "partial").write_bytes(kept)
    assert fetch("data/large.jsonl").sha256 == hashlib.sha256(LARGE).hexdigest()


def test_a_wrong_byte_is_found_and_the_file_fetched_again(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path
) -> None:
    hub.faults["small.jsonl"] = [Fault(flip=3)]
    fetch("small.jsonl")
    assert (tmp_path / "partial").read_bytes() == SMALL


def test_a_file_that_stays_wrong_is_an_error_with_both_digests(
    hub: HubServer, fetch: Callable[[str], Fetched], tmp_path: Path
) -> None:
    hub.faults["large.jsonl"] = [Fault(), Fault(flip=3)] * 10
    with pytest.raises(MarinError, match=rf"SHA-256 \w{{64}}, expected was {hashlib.sha256(LARGE).hexdigest()}"):
        fetch("data/large.jsonl")
    assert not (tmp_path / "partial").exists()


@pytest.mark.parametrize(
    ("ending", "fault"),
    [
        ("revision/main", Fault(503, {"Retry-After": "1"})),
        (f"tree/{COMMIT}", Fault(429, {"Retry-After": "1"})),
        ("small.jsonl", Fault(429, {"RateLimit": '"resolvers";r=0;t=1'})),
    ],
)
def test_a_hub_that_asks_to_wait_is_waited_for(
    hub: HubServer, fetch: Callable[[str], Fetched], ending: str, fault: Fault
) -> None:
    hub.faults[ending] = [fault]
    fetch("small.jsonl")
    first, second = hub.requests_for(ending)[:2]
    assert second.at - first.at >= 1


def test_a_server_that_stays_ill_is_given_up_after_the_agreed_tries(
    hub: HubServer, fetch: Callable[[str], Fetched]
) -> None:
    hub.faults["small.jsonl"] = [Fault(500)] * 100
    with pytest.raises(MarinError, match=r"^small.jsonl: the hub answers 500; gave up after 3 tries\. Files .* kept"):
        fetch("small.jsonl")
    assert len(hub.requests_for("small.jsonl")) == 3


def test_a_gated_dataset_without_a_token_says_where_to_ask(hub: HubServer, fetch: Callable[[str], Fetched]) -> None:
    gate(hub)
    with pytest.raises(MarinError, match=r"lab/texts is gated and there is no token; ask for access at ") as refused:
        fetch("small.jsonl")
    assert f"{hub.url}/datasets/lab/texts, then set HF_TOKEN" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_gated_dataset_with_a_token_without_access_says_so(
    hub: HubServer, fetch: Callable[[str], Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(hub)
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    with pytest.raises(MarinError, match="gated and the token in use has no access"):
        fetch("small.jsonl")


def test_the_token_opens_a_gated_dataset_and_never_reaches_the_cdn(
    hub: HubServer, fetch: Callable[[str], Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(hub)
    monkeypatch.setenv("HF_TOKEN", "hf_member")
    fetch("data/large.jsonl")
    resolved, cdn = hub.requests_for("/data/large.jsonl")
    assert resolved.headers["authorization"] == "Bearer hf_member"
    assert cdn.path.startswith("/cdn/")
    assert "authorization" not in cdn.headers


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (HubOrigin("lab/nothing", "main", ("*",)), r"dataset lab/nothing at revision 'main' is not there, or private"),
        (HubOrigin("lab/texts", "v9", ("*",)), r"dataset lab/texts has no revision 'v9'"),
        (HubOrigin("lab/texts", "main", ("*.csv",)), r"has 3 files at revision main, for instance .*; none matches"),
        (HubOrigin("no such name", "main", ("*",)), r"is not a name that the hub knows|is not there"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(hub: HubServer, origin: HubOrigin, message: str) -> None:
    with pytest.raises(MarinError, match=message) as refused:
        listed(origin)
    assert "\n" not in str(refused.value)


def test_no_network_is_one_line_that_says_what_could_not_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        MarinError, match=r"127\.0\.0\.1:9 cannot be reached: .*Files that are complete are kept"
    ) as refused:
        listed()
    assert "\n" not in str(refused.value)


def test_offline_mode_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MarinError, match="HF_HUB_OFFLINE is set; unset it"):
        listed()
    with pytest.raises(MarinError, match="HF_HUB_OFFLINE is set; unset it"):
        hub_remote(ORIGIN, COMMIT, "small.jsonl")
    assert not hub.seen


def gate(hub: HubServer) -> None:
    files = hub.datasets["lab/texts"].files
    hub.datasets["lab/texts"] = Dataset(files, gated="hf_member")
