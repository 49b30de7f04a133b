"""What the search page looks through, as a script: a page that was opened from a folder may not fetch a file."""

import json
from collections.abc import Sequence

from marin_core.records.site import paths
from marin_core.records.site.experiments import ExperimentView
from marin_core.records.site.render import Pages, SiteFile

# The size of the index is that of its failures; older ones are in the table of all runs.
MOST_FAILURES = 5000


def search_files(pages: Pages, views: Sequence[ExperimentView]) -> list[SiteFile]:
    """The page, and the index that it loads: titles, hypotheses and conclusions, names of artifacts, reasons."""
    index = {"experiments": _experiments(views), "artifacts": _artifacts(pages), "failures": _failures(pages)}
    text = f"window.searchIndex = {json.dumps(index, separators=(',', ':'))};\n"
    page = pages.page("search.html.jinja", paths.SEARCH, most_failures=MOST_FAILURES)
    return [page, SiteFile(paths.SEARCH_INDEX, text.encode())]


def _experiments(views: Sequence[ExperimentView]) -> list[dict[str, object]]:
    return [
        {
            "title": view.declared["title"],
            "about": [view.ruling.conclusion, view.declared["hypothesis"], " ".join(view.declared.get("tags", ()))],
            "verdict": view.ruling.verdict.value,
            "page": paths.experiment_page(view.id),
        }
        for view in views
    ]


def _artifacts(pages: Pages) -> dict[str, dict[str, object]]:
    """By name its folder, and of its newest artifacts [partition, fingerprint]."""
    found: dict[str, dict[str, list[list[str]]]] = {}
    for (name, partition), record in sorted(pages.content.newest.items(), key=lambda one: (one[0][0], one[0][1] or "")):
        found.setdefault(name, {"newest": []})["newest"].append([partition or "", record.fingerprint])
    return {name: {"folder": _folder(name), **held} for name, held in found.items()}


def _folder(name: str) -> str:
    return paths.artifact_list(name).removesuffix(f"/{paths.INDEX}")


def _failures(pages: Pages) -> dict[str, object]:
    """[label, number of the exit class, number of the reason, record]; many fail for the same reason."""
    reasons: dict[str, int] = {}
    classes: dict[str, int] = {}
    rows = []
    for outcome in pages.content.failed[:MOST_FAILURES]:
        exit_class = outcome.exit_class.value if outcome.exit_class else outcome.status
        numbers = (classes.setdefault(exit_class, len(classes)), reasons.setdefault(outcome.cause, len(reasons)))
        rows.append([outcome.label, *numbers, outcome.record])
    return {"reasons": list(reasons), "classes": list(classes), "rows": rows}
