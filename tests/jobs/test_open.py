"""Which launcher a place gets, and a bucket that is far from the pods."""

from pathlib import Path

import pytest

from marin_core.errors import MarinError
from marin_core.jobs.open import refuse_far_bucket
from marin_core.store import Store
from tests.emulator import GcsEmulator


def test_a_bucket_in_another_region_than_the_pods_is_refused(gcs_root: str) -> None:
    """Asked of the server: the emulator's buckets are in us-central1, whatever the profile says."""
    refuse_far_bucket(Store(gcs_root), "us-central1")
    with pytest.raises(MarinError, match="is in us-central1, but the pods run in europe-west4"):
        refuse_far_bucket(Store(gcs_root), "europe-west4")


def test_who_may_not_ask_for_a_buckets_place_is_not_stopped(gcs_emulator: GcsEmulator, gcs_root: str) -> None:
    store = Store(gcs_root)
    store.root = "gs://no-such-bucket-here/lab"
    refuse_far_bucket(store, "europe-west4")


def test_other_stores_have_no_region(tmp_path: Path) -> None:
    refuse_far_bucket(Store(str(tmp_path)), "europe-west4")
