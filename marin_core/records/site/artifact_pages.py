"""The page of each artifact, and the lists of them by name."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marin_core.records.difference import leaves
from marin_core.records.site import paths
from marin_core.records.site.charts import LineChart, Point, Series
from marin_core.records.site.lists import listed
from marin_core.records.site.reading import with_curves
from marin_core.records.site.render import Pages, SiteFile
from marin_core.store import ArtifactRecord, Store

_MOST_ROWS = 500
_MOST_READERS = 100


@dataclass(frozen=True)
class Readers:
    """Artifacts of one name that read another; `count` are all of them, `shown` the first few."""

    name: str
    count: int
    shown: Sequence[ArtifactRecord]


def artifact_pages(pages: Pages, store: Store) -> Iterator[SiteFile]:
    for record, curve in with_curves(store, pages.content.artifacts):
        yield from _artifact_page(pages, record, curve)


def artifact_lists(pages: Pages) -> Iterator[SiteFile]:
    """All names on one page, and for each name its artifacts, the newest first."""
    content = pages.content
    yield pages.page("artifacts.html.jinja", paths.ARTIFACTS, names=sorted(content.by_name))
    for name, records in content.by_name.items():
        newest_first = sorted(records, key=lambda record: record.provenance.ended, reverse=True)
        folder = paths.artifact_list(name).removesuffix(f"/{paths.INDEX}")
        yield from listed(pages, "artifact_list.html.jinja", folder, newest_first, name=name)


def _artifact_page(pages: Pages, record: ArtifactRecord, curve: Sequence[Point]) -> Iterator[SiteFile]:
    content = pages.content
    page = paths.artifact_page(record.name, record.fingerprint)
    chart = LineChart("Training loss", "step", "loss, nats per token", [Series(_label(record), "loss", curve)])
    if chart.shown:
        yield SiteFile(page.removesuffix(".html") + ".csv", chart.csv())
    newest = content.newest[record.name, record.partition]
    config = list(leaves(record.payload["config"], empty=True))
    yield pages.page(
        "artifact.html.jinja",
        page,
        record=record,
        label=_label(record),
        chart=chart if chart.shown else None,
        curves=f"{record.fingerprint}.csv",
        newer=newest if newest.fingerprint != record.fingerprint else None,
        summary=list(leaves(record.summary, empty=True)),
        config=config[:_MOST_ROWS],
        config_rows=len(config),
        inputs=list(itertools.islice(record.inputs.items(), _MOST_ROWS)),
        files=record.files[:_MOST_ROWS],
        readers=_readers(content.used_by.get((record.name, record.fingerprint), [])),
        outcomes=content.outcomes_of_artifact.get((record.name, record.fingerprint), [])[:_MOST_ROWS],
    )


def _readers(records: Sequence[ArtifactRecord]) -> list[Readers]:
    found = []
    for name, group in itertools.groupby(records, key=lambda record: record.name):
        of_name = list(group)
        found.append(Readers(name, len(of_name), of_name[:_MOST_READERS]))
    return found


def _label(record: ArtifactRecord) -> str:
    return f"{record.name} [{record.partition}]" if record.partition else record.name
