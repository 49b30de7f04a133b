"""Where a bucket lies is asked of the service, and that there is none is said in one line."""

import json
import urllib.request
from collections.abc import Callable

import pytest

from marin_core.errors import MarinError
from marin_core.store import Store
from marin_core.store.regions import same_region
from tests.emulator import GcsEmulator

gcs = pytest.importorskip("marin_core.store.gcs")


def test_the_location_of_a_bucket_is_what_the_service_says(gcs_emulator: GcsEmulator, gcs_root: str) -> None:
    bucket = gcs_root.split("/")[2]
    with urllib.request.urlopen(f"{gcs_emulator.host}/storage/v1/b/{bucket}", timeout=10) as answer:
        location = json.load(answer)["location"]
    assert gcs.bucket_location(gcs_root) == location.lower()
    assert same_region(gcs.bucket_location(gcs_root), "us-central1")


def test_a_root_that_is_no_bucket_has_no_location(tmp_path: object) -> None:
    assert gcs.bucket_location(str(tmp_path)) is None


@pytest.mark.parametrize("ask", [gcs.bucket_location, lambda root: Store(root).check_writable()])
def test_a_bucket_that_is_not_there_is_a_one_line_error(gcs_root: str, ask: Callable[[str], object]) -> None:
    with pytest.raises(MarinError, match=r"^there is no bucket 'nobodys'; create it, or set MARIN_STORE to another$"):
        ask("gs://nobodys/lab")
