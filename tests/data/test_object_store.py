"""Sources in an object store: a prefix is listed and fetched through the store's own client, from a real server."""

import hashlib
import random
from pathlib import Path

import pytest

from marin_core.data.sources.acquire import acquire_stage
from marin_core.data.sources.catalogue import parse_source
from marin_core.data.sources.declaration import UrlOrigin
from marin_core.data.sources.fetch import list_urls, open_remote
from marin_core.data.sources.listing import ListedFile
from marin_core.data.sources.patience import Patience
from marin_core.data.sources.transfer import transfer
from marin_core.data.stages import run_stage
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, Store
from tests.emulator import GcsEmulator

DATA = random.Random(0).randbytes(100_000)
PATIENCE = Patience(attempts=2, first_wait=0.01)


@pytest.fixture
def bucket(gcs_emulator: GcsEmulator, gcs_root: str) -> str:
    """URL of a bucket with three objects below `texts/` and one beside."""
    import gcsfs

    fs, name = gcsfs.GCSFileSystem(), gcs_emulator.make_bucket()
    for path in ("texts/a.jsonl", "texts/deep/b.jsonl", "texts/c.txt", "textual.jsonl"):
        fs.pipe_file(f"{name}/{path}", DATA + path.encode())
    return f"gs://{name}"


def test_a_prefix_becomes_a_raw_artifact(bucket: str, tmp_path: Path) -> None:
    entry = {"urls": [f"{bucket}/texts/"], "containing": ".jsonl", "licence": "CC0", "layout": {"format": "jsonl"}}
    store, spec = Store(str(tmp_path)), ArtifactSpec("raw/test", "acquire", "1")
    with store.writer(spec, resumable=True) as writer:
        writer.commit(run_stage(acquire_stage(parse_source("test", entry), writer, print), writer))
    raw = store.artifact(spec)
    assert raw.read("files/a.jsonl") == DATA + b"texts/a.jsonl"
    assert [(file["path"], file["origin"]) for file in raw.read_json("manifest.json")["files"]] == [
        ("files/a.jsonl", f"{bucket}/texts/a.jsonl"),
        ("files/deep/b.jsonl", f"{bucket}/texts/deep/b.jsonl"),
    ]


def test_a_listing_says_how_large_its_files_are(bucket: str) -> None:
    sizes = {file.path: file.size for file in list_urls(UrlOrigin((f"{bucket}/texts/",)), PATIENCE, print)}
    assert sizes == {path: 100_000 + len(f"texts/{path}") for path in ("a.jsonl", "deep/b.jsonl", "c.txt")}


def test_a_part_of_the_same_object_is_completed_and_one_of_another_is_not(bucket: str, tmp_path: Path) -> None:
    url, partial = f"{bucket}/texts/a.jsonl", tmp_path / "partial"
    whole = DATA + b"texts/a.jsonl"
    fetched = transfer(open_remote(url), ListedFile("a", url), partial, PATIENCE, print, "a")
    assert fetched.sha256 == hashlib.sha256(whole).hexdigest()
    for kept in (whole[:50_000], DATA[::-1][:50_000]):
        partial.write_bytes(kept)  # beside it lies which object it is of, and its digest
        transfer(open_remote(url), ListedFile("a", url), partial, PATIENCE, print, "a")
        assert partial.read_bytes() == whole


def test_an_object_that_is_not_there_is_a_one_line_error(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/texts/nothing.jsonl"
    with pytest.raises(MarinError, match=rf"^{url} is not there; check the URL") as refused:
        transfer(open_remote(url), ListedFile("a", url), tmp_path / "a", PATIENCE, print, "a")
    assert "\n" not in str(refused.value)
