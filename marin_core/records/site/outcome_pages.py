"""The page of each run that failed, the lists of all runs and of the failed ones, and the table of all."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields

from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.site import paths
from marin_core.records.site.lists import listed
from marin_core.records.site.render import Pages, SiteFile

_COLUMNS = ["record", *(field.name for field in fields(Outcome) if field.name != "log_tail")]


def outcome_pages(pages: Pages) -> Iterator[SiteFile]:
    content = pages.content
    listed_classes = {outcome.exit_class for outcome in content.failed}
    for outcome in content.outcomes:
        if outcome.status == "succeeded":
            continue
        before = content.by_record.get(outcome.corrects) if outcome.corrects else None
        yield pages.page(
            "outcome.html.jinja",
            paths.outcome_page(outcome.record),
            outcome=outcome,
            # What is corrected may have been the only one that failed so.
            in_list=outcome.exit_class in listed_classes,
            corrected=before,
            corrections=content.corrections.get(outcome.record, []),
        )


def outcome_lists(pages: Pages) -> Iterator[SiteFile]:
    """The runs, newest first: all of them, those that failed, and those that failed in each way."""
    content = pages.content
    classes = Counter(outcome.exit_class for outcome in content.failed if outcome.exit_class)
    counts = [(cls.value, classes[cls]) for cls in ExitClass if classes[cls]]
    values = {"classes": counts, "total": len(content.valid), "failed": len(content.failed)}
    yield SiteFile(paths.RECORDS_TABLE, table(content.outcomes))
    yield from listed(pages, "outcomes.html.jinja", paths.RECORDS, content.valid, chosen="all", **values)
    yield from listed(pages, "outcomes.html.jinja", paths.FAILED, content.failed, chosen="failed", **values)
    for cls, _ in counts:
        rows = [outcome for outcome in content.failed if outcome.exit_class == ExitClass(cls)]
        yield from listed(pages, "outcomes.html.jinja", paths.failed_as(cls), rows, chosen=cls, **values)


def table(outcomes: Sequence[Outcome]) -> bytes:
    """Every record as CSV, corrected ones too, but without the ends of logs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for outcome in outcomes:
        row = {**vars(outcome), "record": outcome.record}
        row["exit_class"] = outcome.exit_class.value if outcome.exit_class else None
        writer.writerow(row[column] for column in _COLUMNS)
    return text.getvalue().encode()
