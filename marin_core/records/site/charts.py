"""Line charts as geometry: from series of points to the paths, ticks and labels of an SVG, and the table beside it."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Point = tuple[float, float]

WIDTH, HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 16, 14, 58
_COLORS = 8
_MAX_POINTS = 300
# Points of all series together, and rows of all in the table.
_MAX_DRAWN = 6000
_MAX_ROWS = 48
# A run that diverges would flatten all others: the axis ends at so many times the median.
_HIGHEST = 3.0


@dataclass(frozen=True)
class Series:
    """One line. Those of the same `group` have the same colour and one entry in the legend."""

    label: str
    group: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Tick:
    """Where a tick lies on its axis, in the units of the drawing, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class LineChart:
    """A chart of `y` over `x`. Points that are no numbers are left out. A line is drawn through the means over the last
    `smoothed` share of its series, and the data beside it is as it was."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    smoothed: float = 0.0

    @cached_property
    def shown(self) -> list[Series]:
        """The series, each with as many points as there is room for."""
        return [
            Series(s.label, s.group, [s.points[n] for n in places])
            for s, places in zip(self._finite, self._places, strict=True)
        ]

    @cached_property
    def drawn(self) -> list[Series]:
        """What the lines go through: as many points as are shown, at the same places."""
        return [
            Series(s.label, s.group, running_means(s.points, self.smoothed, places))
            for s, places in zip(self._finite, self._places, strict=True)
        ]

    @property
    def note(self) -> str:
        """How the lines differ from the data."""
        if not self.smoothed:
            return ""
        share = f"{self.smoothed:.0%}".replace("%", " %")
        return f"Each line is a running mean over the last {share} of a run's steps; the data has the single steps too."

    @cached_property
    def groups(self) -> list[str]:
        """What the legend names, in order."""
        return list(dict.fromkeys(series.group for series in self.shown))

    @property
    def description(self) -> str:
        """For who does not see it."""
        ends = [f"{s.label} from {s.points[0][1]:.4g} to {s.points[-1][1]:.4g}" for s in self.shown[:12]]
        more = f", and {len(self.shown) - len(ends)} more" if len(self.shown) > len(ends) else ""
        return f"{self.y} over {self.x}: {'; '.join(ends)}{more}."

    @property
    def lines(self) -> list[tuple[str, int, str]]:
        """(path, number of its colour, label) of every series."""
        return [(self._path(s.points), self.color(s.group), s.label) for s in self.drawn]

    def color(self, group: str) -> int:
        return self.groups.index(group) % _COLORS

    @property
    def x_ticks(self) -> list[Tick]:
        return [Tick(self._x(value), f"{value:,g}") for value in nice_ticks(*self._x_range, 6)]

    @property
    def y_ticks(self) -> list[Tick]:
        return [Tick(self._y(value), f"{value:.4g}") for value in nice_ticks(*self._y_range, 5)]

    @property
    def frame(self) -> dict[str, float]:
        """The edges of the plot."""
        return {"left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM}

    @property
    def rows(self) -> list[tuple[str, float, float]]:
        """(label, x, y), few enough to read."""
        most = max(2, _MAX_ROWS // max(1, len(self.shown)))
        return [(s.label, x, y) for s in self.shown for x, y in downsample(s.points, most)]

    def csv(self) -> bytes:
        """Every point that is drawn, and where lines are smoothed what they go through."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["run", self.x, self.y, *([f"{self.y}, running mean"] if self.smoothed else [])])
        for shown, drawn in zip(self.shown, self.drawn, strict=True):
            for (x, y), (_, mean) in zip(shown.points, drawn.points, strict=True):
                writer.writerow([shown.label, x, y, *([mean] if self.smoothed else [])])
        return text.getvalue().encode()

    @cached_property
    def _finite(self) -> list[Series]:
        finite = [Series(s.label, s.group, [p for p in s.points if math.isfinite(p[1])]) for s in self.series]
        return [series for series in finite if series.points]

    @cached_property
    def _places(self) -> list[list[int]]:
        """Which points of each finite series there is room for."""
        most = max(2, min(_MAX_POINTS, _MAX_DRAWN // max(1, len(self.series))))
        return [downsample(range(len(s.points)), most) for s in self._finite]

    @cached_property
    def _x_range(self) -> tuple[float, float]:
        xs = [x for s in self.shown for x, _ in s.points]
        return (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 0.5, max(xs) + 0.5)

    @cached_property
    def _y_range(self) -> tuple[float, float]:
        ys = [y for s in self.drawn for _, y in s.points]
        low, high = min(ys), max(ys)
        if low > 0:
            high = min(high, max(_HIGHEST * statistics.median(ys), low))
        margin = (high - low) * 0.04 or max(abs(high), 1.0) * 0.05
        return low - margin, high + margin

    def _path(self, points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{self._x(x):.1f} {self._y(y):.1f}" for x, y in points)

    def _x(self, value: float) -> float:
        low, high = self._x_range
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        low, high = self._y_range
        # What lies beyond the axis ends at the edge of the drawing.
        return max(0.0, _TOP + (high - value) / (high - low) * (HEIGHT - _TOP - _BOTTOM))


def downsample[T](points: Sequence[T], most: int) -> list[T]:
    """At most so many of the points, evenly, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(i * step)] for i in range(most)]


def running_means(points: Sequence[Point], share: float, places: Sequence[int]) -> list[Point]:
    """The points at some places, with the mean of y over the last `share` of all points until there; at the beginning
    over as many as there are."""
    window = max(1, int(share * len(points)))
    ys = [y for _, y in points]
    return [(points[n][0], statistics.fmean(ys[max(0, n + 1 - window) : n + 1])) for n in places]


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round values within a range."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]
