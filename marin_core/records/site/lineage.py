"""The graph of assets in layers, left to right: every asset stands to the right of all that it is made of."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_SWEEPS = 6
_CHARACTER, _PADDING = 7.4, 22
_ROW, _BOX, _GAP, _MARGIN = 40, 28, 56, 12

Edge = tuple[str, str]


@dataclass(frozen=True)
class Node:
    """An asset in the drawing: its box, left upper corner first."""

    name: str
    x: float
    y: float
    width: float
    height: float = _BOX


@dataclass(frozen=True)
class Drawing:
    """The whole graph. `paths` has the path of every edge, from an asset to one that is made of it."""

    width: float
    height: float
    nodes: Sequence[Node]
    paths: Mapping[Edge, str]


def layer_of(names: Iterable[str], edges: Iterable[Edge]) -> dict[str, int]:
    """The layer of every name: the length of the longest way to it, and of what is made of nothing the layer before
    that of its first reader. Edges that would close a circle are left out."""
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    for start, end in sorted(edges):
        above[end].append(start)
        below[start].append(end)
    layers: dict[str, int] = {}
    open_: set[str] = set()

    def layer(name: str) -> int:
        if name not in layers:
            open_.add(name)
            layers[name] = 1 + max((layer(up) for up in above[name] if up not in open_), default=-1)
            open_.discard(name)
        return layers[name]

    found = {name: layer(name) for name in sorted(names)}
    sources = {name for name in found if not above[name] and below[name]}
    return found | {name: max(0, min(found[end] for end in below[name]) - 1) for name in sources}


def draw(names: Iterable[str], edges: Iterable[Edge]) -> Drawing:
    """Lay the graph out."""
    names = sorted(names)
    edges = {edge for edge in edges if edge[0] != edge[1]}
    layers = layer_of(names, edges)
    edges = sorted((start, end) for start, end in edges if layers[start] < layers[end])
    # An edge over several layers takes a place in each, so that it passes between the boxes. Those from one asset share
    # their places, as the branches of a tree do their trunk.
    ways = {edge: [edge[0], *(f"{n} {edge[0]}" for n in _between(layers, edge)), edge[1]] for edge in edges}
    columns = _columns(layers, ways)
    _untangle(columns, ways)
    widths = [max((_width(name) for name in column if name in layers), default=0.0) for column in columns]
    tallest = max((len(column) for column in columns), default=0)
    places: dict[str, tuple[float, float]] = {}
    x = float(_MARGIN)
    for column, width in zip(columns, widths, strict=True):
        top = _MARGIN + (tallest - len(column)) * _ROW / 2
        places |= {name: (x, top + row * _ROW) for row, name in enumerate(column)}
        x += width + _GAP
    nodes = [Node(name, *places[name], widths[layers[name]]) for name in layers]
    right = {name: widths[n] for n, column in enumerate(columns) for name in column}
    paths = {edge: _path([places[stop] for stop in way], [right[stop] for stop in way]) for edge, way in ways.items()}
    return Drawing(x - _GAP + _MARGIN, tallest * _ROW + _MARGIN, nodes, paths)


def _between(layers: Mapping[str, int], edge: Edge) -> range:
    return range(layers[edge[0]] + 1, layers[edge[1]])


def _columns(layers: Mapping[str, int], ways: Mapping[Edge, Sequence[str]]) -> list[list[str]]:
    columns: list[dict[str, None]] = [{} for _ in range(max(layers.values(), default=-1) + 1)]
    for name, layer in layers.items():
        columns[layer][name] = None
    for edge, way in ways.items():
        for layer, stop in zip(_between(layers, edge), way[1:-1], strict=True):
            columns[layer][stop] = None
    return [list(column) for column in columns]


def _untangle(columns: list[list[str]], ways: Mapping[Edge, Sequence[str]]) -> None:
    """Order every column by where its neighbours lie, forth and back."""
    before, after = defaultdict(list), defaultdict(list)
    for start, end in sorted({step for way in ways.values() for step in itertools.pairwise(way)}):
        before[end].append(start)
        after[start].append(end)
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        neighbours = before if forth else after
        order = range(1, len(columns)) if forth else range(len(columns) - 2, -1, -1)
        for n in order:
            beside = columns[n - 1 if forth else n + 1]
            place = {name: (row + 0.5) / len(beside) for row, name in enumerate(beside)}
            own = {name: (row + 0.5) / len(columns[n]) for row, name in enumerate(columns[n])}
            columns[n].sort(key=lambda name: statistics.fmean([place[b] for b in neighbours[name]] or [own[name]]))


def _width(name: str) -> float:
    return len(name) * _CHARACTER + _PADDING


def _path(stops: Sequence[tuple[float, float]], widths: Sequence[float]) -> str:
    """From the right of the first box to the left of the last, level through the columns in between."""
    (x, y), middle = stops[0], _BOX / 2
    path = f"M{x + widths[0]:.1f} {y + middle:.1f}"
    x += widths[0]
    for n, (to_x, to_y) in enumerate(stops[1:], start=1):
        bend = (to_x - x) / 2
        path += f"C{x + bend:.1f} {y + middle:.1f} {to_x - bend:.1f} {to_y + middle:.1f} {to_x:.1f} {to_y + middle:.1f}"
        x, y = to_x, to_y
        if n < len(stops) - 1:
            x += widths[n]
            path += f"H{x:.1f}"
    return path
