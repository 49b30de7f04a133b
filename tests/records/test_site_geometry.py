"""Charts, the drawing of the graph and the paths of pages, for all that may come."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from marin_core.records.site import paths
from marin_core.records.site.charts import HEIGHT, WIDTH, LineChart, Series, downsample, nice_ticks
from marin_core.records.site.lineage import draw

losses = st.floats(min_value=-1e6, max_value=1e6)
points = st.lists(st.tuples(st.integers(0, 10**6).map(float), losses | st.just(math.nan)), max_size=400)


@given(points, st.integers(2, 50))
def test_a_downsampled_line_keeps_its_ends(line: list[tuple[float, float]], most: int) -> None:
    kept = downsample(line, most)
    assert len(kept) == min(len(line), most)
    assert kept[:1] == line[:1]
    assert kept[-1:] == line[-1:]


@given(losses, st.floats(min_value=1e-3, max_value=1e6), st.integers(3, 8))
def test_ticks_are_few_even_and_inside(low: float, span: float, count: int) -> None:
    ticks = nice_ticks(low, low + span, count)
    assert 1 <= len(ticks) <= count + 1
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    steps = [after - before for before, after in itertools.pairwise(ticks)]
    assert all(math.isclose(step, steps[0], rel_tol=1e-3) for step in steps)


@given(st.lists(points, max_size=5))
def test_every_line_lies_in_the_drawing(lines: list[list[tuple[float, float]]]) -> None:
    chart = LineChart("t", "x", "y", [Series(str(n), str(n), line) for n, line in enumerate(lines)])
    drawn = [n for n, line in enumerate(lines) if any(math.isfinite(y) for _, y in line)]
    assert [label for _, _, label in chart.lines] == [str(n) for n in drawn]
    for path, _, _ in chart.lines:
        for pair in path.removeprefix("M").split("L"):
            x, y = map(float, pair.split())
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


def test_a_diverging_run_does_not_flatten_the_others() -> None:
    calm = [(float(n), 5.0 - n / 100) for n in range(200)]
    wild = [*calm[:100], *((float(n), 10.0**n) for n in range(100, 130))]
    chart = LineChart("t", "step", "loss", [Series("calm", "a", calm), Series("wild", "b", wild)])
    heights = [float(pair.split()[1]) for pair in chart.lines[0][0].removeprefix("M").split("L")]
    assert max(heights) - min(heights) > 0.1 * HEIGHT


names = st.lists(st.text("abc/", min_size=1, max_size=8), unique=True, max_size=12)


@given(names, st.data())
def test_boxes_do_not_overlap_and_arrows_go_right(assets: list[str], data: st.DataObject) -> None:
    pairs = [(a, b) for n, a in enumerate(assets) for b in assets[n + 1 :]]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    drawing = draw(assets, edges)
    boxes = {node.name: node for node in drawing.nodes}
    assert set(boxes) == set(assets)
    assert set(drawing.paths) == set(edges)
    for a, b in edges:
        assert boxes[a].x + boxes[a].width < boxes[b].x
    for a, b in pairs:
        one, two = boxes[a], boxes[b]
        apart_x = one.x + one.width < two.x or two.x + two.width < one.x
        apart_y = one.y + one.height < two.y or two.y + two.height < one.y
        assert apart_x or apart_y
    assert all(n.x >= 0 and n.x + n.width <= drawing.width and n.y + n.height <= drawing.height for n in drawing.nodes)


def test_a_circle_is_drawn_without_the_edge_that_closes_it() -> None:
    drawing = draw(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a")])
    assert len(drawing.paths) == 2


parts = st.text(min_size=1, max_size=6).filter(lambda part: "/" not in part)


@given(st.lists(parts, min_size=1, max_size=3), st.lists(parts, min_size=1, max_size=3))
def test_names_become_paths_that_stay_in_the_site_and_apart(one: list[str], two: list[str]) -> None:
    first, second = (paths.artifact_page("/".join(name), "ab12") for name in (one, two))
    assert (first == second) == (one == two)
    assert all(part not in ("", ".", "..") for part in first.split("/"))
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~/")
    assert paths.relative(first, paths.INDEX).endswith(paths.INDEX)
