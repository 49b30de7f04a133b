"""Where the keys of a TOML text stand: by hand for a difficult one, against `tomllib` for the repository's own."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_core.profile.lines import KeyPath, key_lines

REPOSITORY = Path(__file__).parents[2]
FILES = [
    *sorted(file for room in ("marin_core", "tests") for file in (REPOSITORY / room).rglob("*.toml")),
    REPOSITORY / "pyproject.toml",
]

DIFFICULT = '''\
# a = 0, [b], "c" = 1 in a comment
first = 1 # second = 2
"quoted key" = "a string = with [brackets] # and a hash"
'literal.key' = 'back\\slash'
dotted . "in.quotes" . part = [ 1, [ 2, 3 ], # a comment ] in an array
    { deep = true },
]
long = """
[not.a.table]
neither = "this"  \\"""
""""
raw = \'\'\'
key = 1\'\'\'
empty = ""
date = 1979-05-27T07:32:00Z

[table.inner]
inline = { one = 1, two = { three = 3 }, four.five = [] }

[table]
after = -inf

[[many]]
name = "one"
[many.sub]
key = 1

  [[many]]
  name = "two"
  [[many.list]]
  x = 1
  [[many.list]]
  x = 2
'''
EXPECTED = {
    ("first",): 2,
    ("quoted key",): 3,
    ("literal.key",): 4,
    ("dotted",): 5,
    ("dotted", "in.quotes"): 5,
    ("dotted", "in.quotes", "part"): 5,
    ("dotted", "in.quotes", "part", 0): 5,
    ("dotted", "in.quotes", "part", 1): 5,
    ("dotted", "in.quotes", "part", 1, 0): 5,
    ("dotted", "in.quotes", "part", 1, 1): 5,
    ("dotted", "in.quotes", "part", 2): 6,
    ("dotted", "in.quotes", "part", 2, "deep"): 6,
    ("long",): 8,
    ("raw",): 12,
    ("empty",): 14,
    ("date",): 15,
    ("table",): 20,
    ("table", "inner"): 17,
    ("table", "inner", "inline"): 18,
    ("table", "inner", "inline", "one"): 18,
    ("table", "inner", "inline", "two"): 18,
    ("table", "inner", "inline", "two", "three"): 18,
    ("table", "inner", "inline", "four"): 18,
    ("table", "inner", "inline", "four", "five"): 18,
    ("table", "after"): 21,
    ("many",): 23,
    ("many", 0): 23,
    ("many", 0, "name"): 24,
    ("many", 0, "sub"): 25,
    ("many", 0, "sub", "key"): 26,
    ("many", 1): 28,
    ("many", 1, "name"): 29,
    ("many", 1, "list"): 30,
    ("many", 1, "list", 0): 30,
    ("many", 1, "list", 0, "x"): 31,
    ("many", 1, "list", 1): 32,
    ("many", 1, "list", 1, "x"): 33,
}


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every path of a parsed document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def test_difficult_texts_are_read_as_toml_reads_them() -> None:
    assert set(paths(tomllib.loads(DIFFICULT))) == set(EXPECTED)
    assert key_lines(DIFFICULT) == EXPECTED


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_every_key_of_a_real_file_is_found_on_a_line_that_names_it(file: Path) -> None:
    text = file.read_text()
    found = key_lines(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    lines = text.splitlines()
    misplaced = [p for p, line in found.items() if isinstance(p[-1], str) and p[-1] not in lines[line - 1]]
    assert not misplaced
