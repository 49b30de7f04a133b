"""Lists that are too long for a page, cut into pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.records.site import paths
from marin_core.records.site.render import Pages, SiteFile

PAGE_ROWS = 200


@dataclass(frozen=True)
class ListPage:
    """One page of a list: its rows, and where the others lie, by their number from 1."""

    folder: str
    number: int
    count: int
    total: int
    rows: Sequence[Any]

    @property
    def path(self) -> str:
        return paths.list_page(self.folder, self.number)

    def other(self, number: int) -> str:
        return paths.list_page(self.folder, number)

    @property
    def near(self) -> list[int]:
        """The numbers of the first page, the last, and those around this one."""
        around = range(self.number - 2, self.number + 3)
        return sorted(n for n in {1, self.count, *around} if 1 <= n <= self.count)


def listed(pages: Pages, template: str, folder: str, rows: Sequence[Any], **values: Any) -> Iterator[SiteFile]:
    """The pages of a list, one at least."""
    count = max(1, -(-len(rows) // PAGE_ROWS))
    for number in range(1, count + 1):
        shown = rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
        page = ListPage(folder, number, count, len(rows), shown)
        yield pages.page(template, page.path, list=page, **values)
