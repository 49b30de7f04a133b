"""What the commands about records print alike: times, commits, and text that a pipe does not cut short."""

from rich.console import Console

_COMMIT = 9


def wide_console(width: int = 200) -> Console:
    """A console that, where there is no terminal, takes lines of this many characters."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = width
    return console


def minute(time: str) -> str:
    """An ISO time in UTC, to the minute."""
    return f"{time[:10]} {time[11:16]}"


def commit_text(commit: str | None) -> str:
    """A commit, shortened."""
    return f"commit {commit[:_COMMIT]}" if commit else "no commit known"


def value_text(value: object) -> str:
    """A value for people: of a float what one can read, of a list its members."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return ", ".join(value_text(one) for one in value) or "none"
        case _:
            return str(value)
