"""From an artifact's record to Dagster metadata. The only place that decides what the UI shows of an artifact."""

import base64
from collections.abc import Mapping
from typing import Any

import dagster as dg

from marin_core.jobs import JobStatus
from marin_core.store import Artifact, ArtifactRecord


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
    return built | {name: _value(value) for name, value in record.summary.items() if value is not None}


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
        told["log_tail"] = dg.MetadataValue.md("\n".join(["```text", *status.log_tail, "```"]))
    return told | {name: dg.MetadataValue.url(url) for name, url in status.links.items()}


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
