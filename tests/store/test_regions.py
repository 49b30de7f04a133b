"""A bucket is near a cluster when its location is the cluster's region, or contains it."""

import pytest

from marin_core.store.regions import same_region


@pytest.mark.parametrize(
    ("bucket", "region"),
    [
        ("us-east5", "us-east5"),
        ("US-EAST5", "us-east5"),
        ("us", "us-central2"),
        ("eu", "europe-west4"),
        ("asia", "asia-northeast1"),
        ("nam4", "us-east1"),
        ("EUR4", "europe-north1"),
        ("eur8", "europe-west6"),
        ("us-east1+us-west1", "us-west1"),
    ],
)
def test_a_location_contains_its_regions(bucket: str, region: str) -> None:
    assert same_region(bucket, region)


@pytest.mark.parametrize(
    ("bucket", "region"),
    [
        ("us-east5", "us-east1"),
        ("us-east1", "us-east10"),
        ("us-east10", "us-east1"),
        ("us", "europe-west4"),
        ("us", "northamerica-northeast1"),
        ("eu", "europe-west2"),
        ("asia", "australia-southeast1"),
        ("nam4", "us-east5"),
        ("us-east1+us-west1", "us-west4"),
        ("us-central1", "us"),
    ],
)
def test_a_location_contains_no_other_region(bucket: str, region: str) -> None:
    assert not same_region(bucket, region)
