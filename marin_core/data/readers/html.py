"""HTML to text: what a page says, without what frames it."""

# The same on every page of a site. The library's own search for the main content drops lists of the content too.
_FRAMES = ["nav", "header", "footer", "aside", "form", "button", "select", "iframe", "template"]


def html_text(html: str) -> str:
    """The text of a page: blocks on lines of their own, list items marked, preformatted text as it is.

    Empty for what cannot be parsed as a page at all.
    """
    from resiliparse.extract.html2text import extract_plain_text

    try:
        return extract_plain_text(html, preserve_formatting=True, alt_texts=False, skip_elements=_FRAMES)
    except Exception:  # the parser's own errors, of which it exports no common class
        return ""
