"""All files of the site, one at a time: with ten thousand partitions they are gigabytes no process should hold."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from marin_core.records.site import paths
from marin_core.records.site.artifact_pages import artifact_lists, artifact_pages
from marin_core.records.site.content import STATIC, SiteContent
from marin_core.records.site.dataset_pages import dataset_pages, source_names
from marin_core.records.site.experiment_pages import experiment_pages
from marin_core.records.site.experiments import ExperimentView, experiments
from marin_core.records.site.lineage_page import lineage_page
from marin_core.records.site.outcome_pages import outcome_lists, outcome_pages
from marin_core.records.site.render import Pages, SiteFile
from marin_core.records.site.search import search_files
from marin_core.store import Store

_LATEST_FAILURES = 8
_PARALLEL_WRITES = 16
_BATCH = 256
_TELL_EVERY = 5000


def build_site(
    content: SiteContent,
    store: Store,
    write: Callable[[str, bytes], None],
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Write every file of the site, from several threads, by its path from the root; returns the numbers to show.

    The same content in the same store gives the same bytes.
    """
    kinds: Counter[str] = Counter()
    size = 0
    with ThreadPoolExecutor(_PARALLEL_WRITES) as pool:
        for batch in itertools.batched(site_files(content, store), _BATCH):
            for _ in pool.map(lambda file: write(file.path, file.data), batch):
                pass
            before = sum(kinds.values())
            kinds.update(Path(file.path).suffix for file in batch)
            size += sum(len(file.data) for file in batch)
            if sum(kinds.values()) // _TELL_EVERY > before // _TELL_EVERY:
                log(f"{sum(kinds.values()):,} files of the site written")
    return {
        "pages": kinds[".html"],
        "files": sum(kinds.values()),
        "bytes": size,
        "experiments": len(experiments(content)),
        "artifacts": len(content.artifacts),
        "datasets": len(source_names(content)),
        "records": len(content.outcomes),
        "failures": len(content.failed),
    }


def site_files(content: SiteContent, store: Store) -> Iterator[SiteFile]:
    """Every file of the site."""
    pages = Pages(content)
    views = experiments(content)
    yield from (SiteFile(file.name, file.read_bytes()) for file in sorted(STATIC.iterdir()))
    yield _index(pages, views)
    yield from experiment_pages(pages, store, views)
    yield from dataset_pages(pages, store)
    yield lineage_page(pages)
    yield from search_files(pages, views)
    yield from outcome_lists(pages)
    yield from outcome_pages(pages)
    yield from artifact_lists(pages)
    yield from artifact_pages(pages, store)


def _index(pages: Pages, views: Sequence[ExperimentView]) -> SiteFile:
    content = pages.content
    return pages.page(
        "index.html.jinja",
        paths.INDEX,
        views=views,
        verdicts=list(dict.fromkeys(view.ruling.verdict.value for view in views)),
        tags=sorted({tag for view in views for tag in view.declared.get("tags", ())}),
        latest=content.failed[:_LATEST_FAILURES],
        sources=len(source_names(content)),
    )
