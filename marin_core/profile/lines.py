"""Where each key of a TOML text stands, which `tomllib` does not tell. What the keys mean is not here."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator

# From the root to a value: names of keys, and indices where an array is on the way.
type KeyPath = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, counted from 1, of every key and table header of a TOML document that `tomllib` accepts.

    A table is where its header is; one without, where a key below it first names it.
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str):
        self._text = text
        self._at = 0
        self._lines: dict[KeyPath, int] = {}
        self._array_lengths: Counter[KeyPath] = Counter()

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip(_GAP) < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _header(self) -> KeyPath:
        is_array = self._text.startswith("[[", self._at)
        self._at += 1 + is_array
        path: KeyPath = ()
        for name in self._key():
            path = (*self._inside(path), name)
            self._note(path)
        if is_array:
            self._array_lengths[path] += 1
            path = self._inside(path)
        self._lines[path] = self._line()
        self._at += 1 + is_array
        return path

    def _inside(self, path: KeyPath) -> KeyPath:
        """The table that `path` names: of an array of tables, the last one so far."""
        length = self._array_lengths[path]
        return (*path, length - 1) if length else path

    def _pair(self, table: KeyPath) -> None:
        path = table
        for name in self._key():
            path = (*path, name)
            self._note(path)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> Iterator[str]:
        """The parts of a dotted key; afterwards the scanner is at what follows it."""
        while True:
            self._skip(_SPACE)
            quoted = self._text[self._at] in "\"'"
            part = self._take(_STRING if quoted else _BARE_KEY)
            yield tomllib.loads(f"key = {part}")["key"] if quoted else part
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        match self._text[self._at]:
            case '"' | "'":
                self._take(_STRING)
            case "{":
                for _ in self._items("}"):
                    self._pair(path)
            case "[":
                for index in self._items("]"):
                    self._note((*path, index))
                    self._value((*path, index))
            case _:
                self._take(_SCALAR)

    def _items(self, end: str) -> Iterator[int]:
        """Counts the items of an array or inline table; the caller consumes each before asking for the next."""
        self._at += 1
        index = 0
        while self._text[self._skip(_GAP)] != end:
            if self._text[self._at] == ",":
                self._at += 1
            else:
                yield index
                index += 1
        self._at += 1

    def _note(self, path: KeyPath) -> None:
        self._lines.setdefault(path, self._line())

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"not TOML at character {self._at}"
        self._at = found.end()
        return found.group()

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self._take(pattern)
        return self._at
