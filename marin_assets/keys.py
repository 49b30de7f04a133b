"""Asset keys. An asset's key, split at its slashes, and the name of its artifact are the same."""

import dagster as dg


def asset_key(name: str) -> dg.AssetKey:
    return dg.AssetKey(name.split("/"))


def artifact_name(key: dg.AssetKey) -> str:
    return "/".join(key.path)


def group(name: str) -> str:
    """The group of an asset: the first part of its key."""
    return name.split("/")[0]
