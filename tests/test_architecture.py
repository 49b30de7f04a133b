"""The import rules of the house, read from the syntax tree of both packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
HEAVY = {"jax", "levanter", "haliax", "equinox", "optax", "datatrove", "transformers", "torch", "tensorstore", "jmp"}

# What each room of marin_core may import of its siblings. The doors at the end may import every room.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "environment": {"errors"},
    "store": {"errors"},
    "recipes": {"errors"},
    "data": {"errors", "store"},
    "termination": set(),
    "gang": {"errors"},
    "training": {"errors", "store", "data", "recipes", "gang", "termination"},
    "evals": {"errors", "store", "data", "training", "recipes"},
    "exports": {"errors", "store", "data", "training", "recipes"},
    "markdown": set(),
    "columns": set(),
    "publishing": {"errors", "store", "data", "recipes", "evals", "markdown"},
    "scaling": {"errors", "recipes", "markdown", "columns"},
    "records": {"errors", "store", "recipes", "markdown"},
    "build": {"errors", "store", "data", "tasks", "gang"},
    "jobs": {"errors", "store", "data", "build", "recipes", "tasks", "gang", "termination"},
}
DOORS = {"cli", "worker", "graph", "profile", "status", "tasks", "plan_file"}


def python_files(package: str) -> list[Path]:
    return sorted((REPOSITORY / package).rglob("*.py"))


def runs_later(node: ast.AST) -> bool:
    """A function's body, or what only a type checker reads."""
    guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return guarded or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def imports(path: Path, *, module_level_only: bool) -> Iterator[str]:
    """Dotted names of imported modules; with `module_level_only`, those that importing the file executes."""

    def visit(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield child.module or ""
            elif not (module_level_only and runs_later(child)):
                yield from visit(child)

    return visit(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", python_files("marin_core"), ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_the_core_knows_nothing_of_dagster(path: Path) -> None:
    tops = {name.split(".")[0] for name in imports(path, module_level_only=False)}
    assert not tops & {"dagster", "marin_assets"}


@pytest.mark.parametrize(
    "path", python_files("marin_core") + python_files("marin_assets"), ids=lambda p: str(p.relative_to(REPOSITORY))
)
def test_heavy_libraries_are_imported_only_inside_functions(path: Path) -> None:
    tops = {name.split(".")[0] for name in imports(path, module_level_only=True)}
    assert not tops & HEAVY


@pytest.mark.parametrize("path", python_files("marin_core"), ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    room = path.relative_to(REPOSITORY / "marin_core").parts[0].removesuffix(".py")
    if room in DOORS or room == "__init__":
        return
    used = {name.split(".")[1] for name in imports(path, module_level_only=False) if name.startswith("marin_core.")}
    assert used - {room} <= ROOMS[room]


def test_every_file_does_one_thing() -> None:
    sizes = {
        path: len(path.read_text().splitlines()) for p in ("marin_core", "marin_assets") for path in python_files(p)
    }
    assert max(sizes.values()) <= 500
    assert sorted(sizes.values())[len(sizes) // 2] <= 150
