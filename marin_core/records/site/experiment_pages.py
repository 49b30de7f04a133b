"""The page of each experiment, with its loss curves and figures."""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.records.site import paths
from marin_core.records.site.charts import LineChart, Series, downsample
from marin_core.records.site.content import SiteContent
from marin_core.records.site.experiments import ExperimentView, Run
from marin_core.records.site.reading import file_bytes, table_as_csv, with_curves
from marin_core.records.site.render import Pages, SiteFile
from marin_core.records.site.result_rows import result_rows
from marin_core.store import ArtifactRecord, Store

# More would be a thicket, and a page too large to open.
MOST_CURVES = 40
MOST_ROWS = 500
# The loss of a step is that of a few sequences: curves as they are would hide each other.
_SMOOTHED = 0.05
_TABLES = "delphi/dataset"
_RESULT = "result.json"
_OWN_TABLES = ("runs", "curves")
# Bytes of Parquet; a table beyond that is better read from the store.
_LARGEST_TABLE = 2_000_000
_CURVES = "loss_curves.csv"


@dataclass(frozen=True)
class Figure:
    """A picture that the result has, and the tables behind it."""

    name: str
    image: str
    tables: Sequence[str]


def experiment_pages(pages: Pages, store: Store, views: Sequence[ExperimentView]) -> Iterator[SiteFile]:
    for view in views:
        page = paths.experiment_page(view.id)
        chart = _chart(store, view)
        tables = list(_tables(pages.content, store, view, page))
        pictures = list(_pictures(store, view, page))
        yield from tables
        yield from (image for _, image in pictures)
        if chart is not None:
            yield SiteFile(paths.beside(page, _CURVES), chart.csv())
        yield pages.page(
            "experiment.html.jinja",
            page,
            view=view,
            result=result_rows(view.result.summary) if view.result else [],
            details=_details(store, view),
            chart=chart,
            curves=_CURVES,
            figures=[Figure(name, image.path, _behind(name, tables)) for name, image in pictures],
            tables=[table.path for table in tables],
            most_rows=MOST_ROWS,
        )


def _details(store: Store, view: ExperimentView) -> Mapping[str, Any]:
    """What the result says run by run, if it does."""
    data = file_bytes(store, view.result, _RESULT) if view.result else None
    details = json.loads(data) if data else {}
    return {part: details.get(part) or () for part in ("pairs", "settings", "verdicts")}


def _chart(store: Store, view: ExperimentView) -> LineChart | None:
    there = [(run, run.record) for run in view.runs if run.record is not None]
    drawn = downsample(there, MOST_CURVES)
    curves = (curve for _, curve in with_curves(store, [record for _, record in drawn]))
    series = [
        Series(run.partition or run.name, _group(run), curve)
        for (run, _), curve in zip(drawn, curves, strict=True)
        if curve
    ]
    title = "Training loss" if len(drawn) == len(there) else f"Training loss of {len(drawn)} of {len(there)} runs"
    chart = LineChart(title, "step", "loss, nats per token", series, smoothed=_SMOOTHED)
    return chart if chart.shown else None


def _group(run: Run) -> str:
    """The arm; in a suite the budget, which begins the name of the partition."""
    return run.arm or (run.partition or run.name).rpartition("-")[0] or "runs"


def _pictures(store: Store, view: ExperimentView, page: str) -> Iterator[tuple[str, SiteFile]]:
    for file in view.result.files if view.result else ():
        name = file.path.removesuffix(".png")
        data = file_bytes(store, view.result, file.path) if view.result and name != file.path else None
        if data is not None:
            yield name, SiteFile(paths.beside(page, f"figures/{paths.slug(name)}.png"), data)


def _tables(content: SiteContent, store: Store, view: ExperimentView, page: str) -> Iterator[SiteFile]:
    """The tables of the result and, of a suite's, those behind its figures."""
    for record in (view.result, _suite_tables(content, view)):
        for file in record.files if record else ():
            stem = file.path.removesuffix(".parquet")
            small = stem != file.path and file.size <= _LARGEST_TABLE
            data = table_as_csv(store, record, file.path) if record and small else None
            if data is not None:
                yield SiteFile(paths.beside(page, f"tables/{paths.slug(stem)}.csv"), data)


def _behind(figure: str, tables: Sequence[SiteFile]) -> list[str]:
    """The tables that are named as a figure is; else those of the result itself."""
    stems = {table.path: posixpath.basename(table.path).removesuffix(".csv") for table in tables}
    slug = paths.slug(figure)
    named = [path for path, stem in stems.items() if stem.startswith(slug) or slug.startswith(stem)]
    return named or [path for path, stem in stems.items() if stem in _OWN_TABLES]


def _suite_tables(content: SiteContent, view: ExperimentView) -> ArtifactRecord | None:
    """The newest set of tables that was made of the same runs as the result of a suite."""
    if view.result is None or not view.is_about_suite:
        return None
    read = {(entry.name, entry.fingerprint) for entry in view.result.inputs.values()}
    found = [
        record
        for record in content.by_name.get(_TABLES, [])
        if any((entry.name, entry.fingerprint) in read for entry in record.inputs.values())
    ]
    return max(found, key=lambda record: record.provenance.ended, default=None)
