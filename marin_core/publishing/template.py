"""Cards: a Jinja template of this folder filled with what artifacts say, under metadata that a hub reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_core.markdown import template as markdown

if TYPE_CHECKING:
    from huggingface_hub import CardData

NOT_RECORDED = "not recorded"


def render(template: str, metadata: "CardData", values: Mapping[str, Any]) -> str:
    """The text of a `README.md`. A name that the template uses and `values` lacks is an error."""
    body = markdown(Path(__file__).with_name(template), NOT_RECORDED, number=number).render(values)
    return f"---\n{metadata.to_yaml()}\n---\n\n{body}"


def number(value: float | None) -> str:
    """Six significant digits at most; None is a number that there is not."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
