"""What people write about an experiment: the Markdown file beside its declaration."""

from pathlib import Path


def prose_beside(declaration: str) -> str:
    """The text of the Markdown file of the same name as a Python file (its `__file__`); empty if there is none."""
    file = Path(declaration).with_suffix(".md")
    return file.read_text() if file.exists() else ""
