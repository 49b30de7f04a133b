"""What the phases of near-duplicate removal share: the settings, the division into items, and the documents of a part.

Documents are numbered by part and row, a uint64 each, which is the order of their ids.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from marin_core.data.attributes import attribute_path
from marin_core.data.documents import document_parts, read_part, text_batches
from marin_core.data.flat.arrays import Array
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.near_duplicates.containment import ContainmentConfig
from marin_core.errors import MarinError
from marin_core.store import Artifact, Workspace

# What an item holds: band hashes of one partition, and text of one group of clusters.
_PARTITION_HASHES = 8_000_000
_GROUP_BYTES = 192_000_000


@dataclass(frozen=True)
class Plan:
    """A source's documents and how the work on them is divided."""

    normalized: Artifact
    quality: Artifact
    config: MinHashConfig
    workspace: Workspace

    @cached_property
    def containment(self) -> ContainmentConfig:
        return ContainmentConfig(
            min_containment=self.config.min_containment, boilerplate_share=self.config.boilerplate_share
        )

    @cached_property
    def parts(self) -> list[str]:
        return document_parts(self.normalized)

    @cached_property
    def partitions(self) -> int:
        """Of the band hashes."""
        return max(1, math.ceil(self.config.bands * self.quality.record.summary["documents"] / _PARTITION_HASHES))

    @cached_property
    def groups(self) -> int:
        """Of clusters."""
        return max(1, math.ceil(self.quality.record.summary["bytes"] / _GROUP_BYTES))

    @cached_property
    def sample(self) -> int:
        """Documents of each part in which boilerplate is looked for."""
        return math.ceil(self.containment.sample_documents / len(self.parts))

    def files(self, phase: str) -> list[str]:
        """Intermediate files of a phase that has an item per part."""
        return [f"{phase}/{part:05d}.arrow" for part in range(len(self.parts))]

    def verdicts(self, part: int) -> pl.DataFrame:
        """Id of every document of a part, and whether quality kept it."""
        return read_part(self.quality, attribute_path("verdicts", self.parts[part]), ["id", "keep"])

    def kept(self, part: int) -> Iterator[pl.DataFrame]:
        """The documents of a part that quality kept, in batches: key, id, text.

        Raises:
            MarinError: the verdicts are of other documents.
        """
        verdicts = self.verdicts(part)
        start = 0
        for batch in text_batches(self.normalized, self.parts[part]):
            of_batch = verdicts[start : start + len(batch)]
            if not of_batch["id"].equals(batch["id"]):
                raise MarinError(
                    f"{self.quality.record.name} has verdicts on other documents than {self.parts[part]} of "
                    f"{self.normalized.record.name} holds; materialize {self.quality.record.name} again"
                )
            rows = pl.Series("key", keys_of(part, np.arange(start, start + len(batch))))
            yield batch.select(rows, "id", "text").filter(of_batch["keep"])
            start += len(batch)


def keys_of(part: int, rows: Array) -> Array:
    """The numbers of documents of a part."""
    return np.uint64(part) << np.uint64(32) | rows.astype(np.uint64)


def parts_of(keys: Array) -> Array:
    return (keys >> np.uint64(32)).astype(np.int64)
