"""Where the code is that makes an asset: its task's function, found without importing it."""

import ast
import functools
import re
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from marin_core import environment
from marin_core.tasks import TASKS

_REMOTE = re.compile(r"(?:https://(?:[^/@]+@)?|ssh://git@|git@)([^/:]+)(?::\d+)?[/:](.+?)(?:\.git)?/?")


def definition_metadata(task: str) -> Mapping[str, object]:
    """What the definition of an asset says of it, where `task` is what makes it."""
    return {"dagster/code_references": code_references(task)}


@functools.cache
def code_references(task: str) -> dg.CodeReferencesMetadataValue:
    """The function of a task: its file and line here and, where that is known, on the page of the repository."""
    path, name = function_of(task)
    line = _lines(path)[name]
    page = _page(path.relative_to(environment.repository()).as_posix(), line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        here = dg.LocalFileCodeReference(file_path=str(path), line_number=line, label=name)
        there = [dg.UrlCodeReference(url=page, label=name)] if page else []
        return dg.CodeReferencesMetadataValue(code_references=[here, *there])


def function_of(task: str) -> tuple[Path, str]:
    """The file of a task's function, and the function's name."""
    module, _, name = TASKS[task].function.partition(":")
    return environment.repository() / "marin_core" / "tasks" / f"{module}.py", name


def repository_page(remote: str) -> str | None:
    """The web address of a repository at GitHub or GitLab, from what git calls its remote; else None."""
    match = _REMOTE.fullmatch(remote.strip())
    if match is None or not re.search(r"github|gitlab", match[1]):
        return None
    return f"https://{match[1]}/{match[2]}"


@functools.cache
def _lines(path: Path) -> dict[str, int]:
    """The line of every function of a module."""
    return {node.name: node.lineno for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def _page(path: str, line: int) -> str | None:
    repository, commit = _published()
    if repository is None or commit is None:
        return None
    blob = "-/blob" if "gitlab" in repository else "blob"
    return f"{repository}/{blob}/{commit}/{path}#L{line}"


@functools.cache
def _published() -> tuple[str | None, str | None]:
    """The page of the repository, and the commit that this code is."""
    remote = environment.code_url() or _git("remote", "get-url", "origin")
    return repository_page(remote), environment.commit() or _git("rev-parse", "HEAD") or None


def _git(*arguments: str) -> str:
    """What git says of the checkout that this code runs from; nothing outside one."""
    folder = environment.repository()
    if not (folder / ".git").exists():
        return ""
    try:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
