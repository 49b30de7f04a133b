"""Which regions a bucket's location lies in. Pure, and light to import."""

# Predefined dual-regions and multi-regions of Google Cloud Storage:
# https://cloud.google.com/storage/docs/locations#available-locations
_DUAL_REGIONS = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}
_MULTI_REGIONS = {"asia": "asia-", "eu": "europe-", "us": "us-"}
# London and Zurich are in Europe and not in the European Union.
_OUTSIDE_EU = ("europe-west2", "europe-west6")


def same_region(bucket: str, region: str) -> bool:
    """Whether a bucket's location is, or as a dual-region or multi-region contains, the region of a cluster.

    `bucket` is as the service spells it, in any case (`US-EAST5`, `nam4`, `eu`), or for a configurable dual-region both
    regions joined by `+`. What is in a multi-region counts as near although reading it from there is not free.
    """
    bucket, region = bucket.lower(), region.lower()
    if bucket in _MULTI_REGIONS:
        return region.startswith(_MULTI_REGIONS[bucket]) and not (bucket == "eu" and region in _OUTSIDE_EU)
    return region in _DUAL_REGIONS.get(bucket, bucket.split("+"))
