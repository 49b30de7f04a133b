"""From a template and values to a page. Whatever a value says is text: it is escaped."""

import functools
import json
import math
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin_core.records.outcome import Outcome
from marin_core.records.site import paths
from marin_core.records.site.content import TEMPLATES, SiteContent

if TYPE_CHECKING:
    from jinja2 import Environment

NOTHING = "–"
# Wide tables are scrolled, not the page.
_TABLE_BEGINS = (
    '<div class="scroll" tabindex="0" role="region" aria-label="Table in the text">'
    '<table><caption class="unseen">Table in the text</caption>'
)
_LONGEST = 2000


@dataclass(frozen=True)
class SiteFile:
    """A file of the site: its path from the root, and its bytes."""

    path: str
    data: bytes


@dataclass(frozen=True)
class Pages:
    """Renders the pages of one site."""

    content: SiteContent

    def page(self, template: str, path: str, **values: Any) -> SiteFile:
        """Fill a template in. A name that it uses and is not given is an error."""
        folder = posixpath.dirname(path)
        root = "../" * (folder.count("/") + 1) if folder else ""
        text = (
            environment()
            .get_template(template)
            .render(site=self.content, root=root, path=path, paths=paths, links=self, **values)
        )
        return SiteFile(path, text.encode())

    def artifact(self, name: str, fingerprint: str | None) -> str | None:
        """The page of an artifact, if the store holds it."""
        if fingerprint is None or (name, fingerprint) not in self.content.by_key:
            return None
        return paths.artifact_page(name, fingerprint)

    def outcome(self, outcome: Outcome) -> str | None:
        """The page of what failed, else of the artifact that was made, if there is one."""
        if outcome.status != "succeeded":
            return paths.outcome_page(outcome.record)
        return self.artifact(outcome.asset, outcome.fingerprint)


@functools.cache
def environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "value": value,
        "when": when,
        "bytes": readable_bytes,
        "number": number,
        "words": words,
        "slug": paths.slug,
        "prose": prose,
        "web": web_address,
    }
    return made


def value(found: Any) -> str:
    """Any value of a record, in one line."""
    match found:
        case None:
            return NOTHING
        case bool():
            return "yes" if found else "no"
        case int() | float():
            return number(found)
        case str():
            return _cut(found) or NOTHING
        case _ if not found:
            return "none"
        case list() | tuple() if all(isinstance(item, str | int | float) for item in found):
            return _cut(", ".join(value(item) for item in found))
        case _:
            return _cut(json.dumps(found, ensure_ascii=False))


def number(found: float | None) -> str:
    """Six significant digits at most; whole numbers in groups of three."""
    if found is None:
        return NOTHING
    if isinstance(found, int) or (math.isfinite(found) and found == int(found) and abs(found) < 1e12):
        return f"{int(found):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{found:.6g}"


def readable_bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} PB"


def when(time: str | None) -> str:
    """A time of a record, to the minute."""
    return f"{time[:10]} {time[11:16]} UTC" if time and len(time) >= 16 else time or NOTHING


def words(name: str) -> str:
    """A field's name as one reads it."""
    return name.replace("_", " ")


def web_address(found: Any) -> str | None:
    """A value if it may be a link: what a record holds could be any scheme."""
    return found if isinstance(found, str) and found.startswith(("https://", "http://")) else None


def prose(markdown: str, level: int = 3) -> Any:
    """Markdown as HTML, its headings from `level` on. HTML in it is text; pictures from elsewhere are links."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.add_render_rule("table_open", lambda *_: _TABLE_BEGINS)
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type == "th_open":
            token.attrSet("scope", "col")
    headings = [token for token in tokens if token.type in ("heading_open", "heading_close")]
    _renumber([token for token in headings if token.type == "heading_open"], level)
    opened = None
    for token in headings:
        opened = token.tag if token.type == "heading_open" else opened
        token.tag = opened or token.tag
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _renumber(headings: Iterable[Any], level: int) -> None:
    """Levels that begin at `level` and leave none out, deeper where the author's are deeper."""
    above: list[tuple[int, int]] = []
    for heading in headings:
        own = int(heading.tag[1:])
        while above and above[-1][0] >= own:
            above.pop()
        now = min(6, above[-1][1] + 1 if above else level)
        above.append((own, now))
        heading.tag = f"h{now}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text):,} characters)"
