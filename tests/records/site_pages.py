"""Pages as a reader without scripts, a crawler or a screen reader takes them: their elements, links and headings."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_EMPTY = {"meta", "link", "input", "img", "br", "hr"}


@dataclass
class Element:
    """An element with its attributes, the elements in it, and the text right in it."""

    tag: str
    attributes: Mapping[str, str]
    inner: list["Element"] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def all(self, *tags: str) -> Iterator["Element"]:
        """Itself and what is in it, in order, as far as it is of these tags."""
        if not tags or self.tag in tags:
            yield self
        for element in self.inner:
            yield from element.all(*tags)

    @property
    def text(self) -> str:
        return " ".join("".join(self.parts).split())


class Page(HTMLParser):
    """A page, parsed. What is not closed, or closed without having been opened, is an error."""

    def __init__(self, path: str, html: str):
        super().__init__()
        self.path = path
        self.root = Element("document", {})
        self._open = [self.root]
        self.feed(html)
        assert len(self._open) == 1, f"{path} leaves <{self._open[-1].tag}> open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inner.append(element)
        if tag not in _EMPTY:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].inner.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        opened = self._open.pop()
        assert opened.tag == tag, f"{self.path} closes <{opened.tag}> with </{tag}>"

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.parts.append(data)

    def all(self, *tags: str) -> Iterator[Element]:
        return self.root.all(*tags)

    @property
    def text(self) -> str:
        return next(self.all("body")).text

    @cached_property
    def ids(self) -> list[str]:
        return [e.attributes["id"] for e in self.all() if "id" in e.attributes]

    @property
    def links(self) -> Iterator[str]:
        """Everything that the page asks for or leads to."""
        for element in self.all():
            yield from (element.attributes[name] for name in ("href", "src", "action") if name in element.attributes)

    def target(self, link: str) -> str:
        """The path from the root of the site that a relative link leads to."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.path), unquote(urlsplit(link).path)))


def read_pages(folder: Path) -> dict[str, Page]:
    """The pages of a site by path."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.html"))}
    return {name: Page(name, path.read_text()) for name, path in files.items()}
