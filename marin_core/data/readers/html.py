"""HTML to text: the words of a page in reading order, a line for each block, preformatted text as it is."""

import re
from html.parser import HTMLParser


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Their content is no text of the page, or is the same on every page of a site.
_DROPPED = _tags(
    "script style head noscript template svg math iframe object select button form nav header footer aside"
)
_BLOCKS = _tags(
    "address article blockquote br caption dd details div dl dt fieldset figcaption figure h1 h2 h3 h4 h5 h6 hr li "
    "main ol p pre section summary table tbody td tfoot th thead tr ul"
)
_VOID = _tags("area base br col embed hr img input link meta source track wbr")
_BLANKS = re.compile(r"\s+")


def html_text(html: str) -> str:
    """The text of a page, without scripts, styles, forms and what frames the content (navigation, headers, footers).

    A line for each block element; other whitespace is one blank, but in `pre` as it is.
    """
    parser = _Text()
    parser.feed(html)
    parser.close()
    lines = "".join(parser.pieces).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._dropping: list[str] = []
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "body":  # a head that is not closed ends here
            self._dropping = []
        elif self._dropping or tag in _DROPPED:
            if tag in _DROPPED:
                self._dropping.append(tag)
        elif tag in _BLOCKS:
            self._break()
            self._preformatted += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag in _VOID and tag in _BLOCKS and not self._dropping:
            self._break()

    def handle_endtag(self, tag: str) -> None:
        if tag in self._dropping:
            while self._dropping.pop() != tag:
                pass
        elif not self._dropping and tag in _BLOCKS:
            self._break()
            self._preformatted = max(self._preformatted - (tag == "pre"), 0)

    def handle_data(self, data: str) -> None:
        if self._dropping:
            return
        if self._preformatted:
            self.pieces.append(data)
            return
        text = _BLANKS.sub(" ", data)
        at_line_start = not self.pieces or self.pieces[-1].endswith(("\n", " "))
        text = text.lstrip() if at_line_start else text
        if text:
            self.pieces.append(text)

    def _break(self) -> None:
        if self.pieces and not self.pieces[-1].endswith("\n"):
            self.pieces.append("\n")
