"""Cards: a Jinja template of this folder filled with what artifacts say, under metadata that a hub reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from huggingface_hub import CardData

NOT_RECORDED = "not recorded"


def render(template: str, metadata: "CardData", values: Mapping[str, Any]) -> str:
    """The text of a `README.md`. A name that the template uses and `values` lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML
    )
    environment.filters |= {"cell": cell, "number": number}
    return f"---\n{metadata.to_yaml()}\n---\n\n{environment.get_template(template).render(values)}"


def cell(value: Any) -> str:
    """A value in a Markdown table; None is a thing that was not recorded."""
    if value is None:
        return NOT_RECORDED
    return " ".join(str(value).split()).replace("|", "\\|")


def number(value: float | None) -> str:
    """Six significant digits at most; None is a number that there is not."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
