"""Markdown from Jinja templates: how every report and card of a lab is filled in."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template


def template(file: Path, missing: str, **filters: Any) -> "Template":
    """A template whose filter `cell` writes a value in a table, `missing` for None; `filters` are more of them. A name
    that it uses and is not given is an error when it is rendered."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(file.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML
    )
    environment.filters |= {"cell": lambda value: missing if value is None else cell(value), **filters}
    return environment.get_template(file.name)


def cell(value: Any) -> str:
    """A value in a table: in one line, without what would end the cell."""
    return " ".join(str(value).split()).replace("|", "\\|")
