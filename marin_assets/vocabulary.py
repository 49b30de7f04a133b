"""The words by which assets are found in the web UI: every kind and every tag that one may have."""

import re
from collections.abc import Mapping

from marin_core.data.sources.declaration import Source
from marin_core.graph import LabGraph

# What an asset's artifact is.
KINDS = frozenset({"files", "parquet", "tokens", "jax", "eval", "report", "huggingface"})
# Tags by key: what their values are.
TAGS: Mapping[str, str] = {
    "source": "the source that documents are of; a slash in its name is a dot",
    "role": "what the source is for: train or evaluation",
    "license": "the licence of the source, where it is one that can be a tag",
    "marin/suite": "the recipe whose runs it is made of",
}
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,63}")


def source_tags(source: Source) -> dict[str, str]:
    """The tags of whatever is made of one source."""
    tags = {"source": source.name.replace("/", "."), "role": source.role}
    return tags | ({"license": source.licence} if _TAG_VALUE.fullmatch(source.licence) else {})


def suite_tags(graph: LabGraph) -> dict[str, str]:
    """The tags of whatever is made of the suite's runs."""
    return {"marin/suite": graph.scale.recipe.name}
