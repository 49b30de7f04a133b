"""From an artifact's record to Dagster metadata. The only place that decides what the UI shows of an artifact."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from marin_core.jobs import JobStatus
from marin_core.store import Artifact, ArtifactRecord

# Longer than any that a log is likely to hold.
_FENCE = "`````"
# Dagster keeps every event for ever, three times over.
_TAIL_LINES = 50
_TAIL_CHARACTERS = 5000
_LINE_CHARACTERS = 400


def artifact_metadata(record: ArtifactRecord, url: str, *, reused: bool) -> dict[str, dg.MetadataValue]:
    """Identity, place, whether it was built or reused, provenance, and the numbers of the record's summary."""
    provenance = record.provenance
    built = {
        "reused": dg.MetadataValue.bool(reused),
        "fingerprint": dg.MetadataValue.text(record.fingerprint),
        "path": dg.MetadataValue.path(url) if "://" not in url else dg.MetadataValue.url(url),
        "size_bytes": dg.MetadataValue.int(record.size),
        "built_at": dg.MetadataValue.text(provenance.ended),
        "commit": dg.MetadataValue.text(f"{provenance.commit or 'unknown'}{' (dirty)' if provenance.dirty else ''}"),
        "host": dg.MetadataValue.text(provenance.host),
    }
    if offline := record.summary.get("wandb_offline"):
        built["wandb_sync"] = dg.MetadataValue.text(_sync_command(url, offline))
    numbers = _counts(record.summary) | {name: value for name, value in record.summary.items() if value is not None}
    return built | {name: _value(value) for name, value in numbers.items()}


def _counts(summary: Mapping[str, Any]) -> dict[str, int]:
    """`tokens` and `documents` of what counts them by split, so that every stage has a number to plot over time."""
    splits = ("train", "validation")
    return {
        unit: sum(summary.get(f"{split}_{unit}", 0) for split in splits)
        for unit in ("tokens", "documents")
        if f"train_{unit}" in summary
    }


def _sync_command(url: str, offline: str) -> str:
    """What shows at W&B the runs that were written to the artifact's folder `offline`."""
    if "://" not in url:
        return f"wandb sync {url}/{offline}"
    return f"gcloud storage cp -r {url}/{offline} . && wandb sync {offline}"


def job_metadata(status: JobStatus) -> dict[str, dg.MetadataValue]:
    """How a job went: retries of both kinds, why it failed if it did, and what is worth looking at."""
    told: dict[str, dg.MetadataValue] = {
        "preemptions": dg.MetadataValue.int(status.preemptions),
        "failures": dg.MetadataValue.int(status.failures),
    }
    if status.failure is not None:
        told["failure_class"] = dg.MetadataValue.text(status.failure.value)
    if status.log_tail:
        told["log_tail"] = dg.MetadataValue.md("\n".join([_FENCE, *shortened(status.log_tail), _FENCE]))
    return told | {name: dg.MetadataValue.url(url) for name, url in status.links.items()}


def shortened(log_tail: Sequence[str]) -> tuple[str, ...]:
    """The end of a log, small enough to travel in an event."""
    kept: list[str] = []
    left = _TAIL_CHARACTERS
    for line in reversed(log_tail[-_TAIL_LINES:]):
        short = line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}…"
        left -= len(short) + 1
        if left < 0:
            break
        kept.append(short)
    return tuple(reversed(kept))


def lines_of(log_tail: str) -> tuple[str, ...]:
    """The lines of a `log_tail` in the metadata."""
    return tuple(log_tail.split("\n")[1:-1])


def image_metadata(artifact: Artifact, names: list[str]) -> dict[str, dg.MetadataValue]:
    """PNG figures of an artifact as Markdown images, small enough to travel in an event."""
    images = {}
    for name in names:
        with artifact.open(f"{name}.png") as file:
            encoded = base64.b64encode(file.read()).decode()
        images[f"figure_{name}"] = dg.MetadataValue.md(f"![{name}](data:image/png;base64,{encoded})")
    return images


def data_version(record: ArtifactRecord) -> dg.DataVersion:
    """Changes exactly when readers of the artifact have to be built again."""
    return dg.DataVersion(f"{record.fingerprint}-{record.content}")


def _value(value: Any) -> dg.MetadataValue:
    match value:
        case bool():
            return dg.MetadataValue.bool(value)
        case int():
            return dg.MetadataValue.int(value)
        case float():
            return dg.MetadataValue.float(value)
        case str() if value.startswith(("https://", "http://")):
            return dg.MetadataValue.url(value)
        case str():
            return dg.MetadataValue.text(value)
        case Mapping() | list() | tuple():
            return dg.MetadataValue.json(value if isinstance(value, Mapping) else list(value))
        case _:
            return dg.MetadataValue.text(str(value))
