"""Pictures of the roofline, of memories, of waiting warps and of occupancy."""

from __future__ import annotations

import pytest
from matplotlib.patches import FancyBboxPatch

from yaie.course.viz import (
    Level,
    Point,
    Roof,
    Span,
    draw_hierarchy,
    draw_latency,
    draw_occupancy,
    draw_roofline,
)

ROOF = Roof("a device", 100e12, 1e12)


def words(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def dots(figure) -> list[tuple[float, float]]:
    lines = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in lines]


def test_points_stand_where_they_belong():
    points = [
        Point("memory-bound", 10.0),
        Point("compute-bound", 1000.0),
        Point("measured", 10.0, 5e12),
        Point("faster", 1000.0, 50e12, group="b"),
    ]
    figure = draw_roofline([ROOF], points, "four")
    found = {round(x, 3): [] for x, _ in dots(figure)}
    for x, y in dots(figure):
        found[round(x, 3)].append(y)
    (left_x, left), (right_x, right) = sorted(found.items())[:2]
    assert len(left) == 2 and len(right) == 2
    # Both were measured at half of what the roof allows: the same step down on a log scale.
    assert max(left) - min(left) == pytest.approx(max(right) - min(right))
    assert min(right) < min(left)  # the roof is higher there, and y points down
    decade = (right_x - left_x) / 2
    rise = (min(left) - min(right)) / 1.0  # from 10 to 100 TFLOP/s
    assert decade > 0 and rise > 0
    assert {"memory-bound", "compute-bound", "measured", "faster"} <= set(words(figure))
    assert "ridge: 100 operations a byte" in words(figure)
    assert figure._repr_png_()


def test_dots_on_each_other_share_a_label():
    points = [Point(name, 1.0, group=name) for name in "abc"] + [Point("a", 1.001, group="b")]
    assert "a, b, c" in words(draw_roofline([ROOF, Roof("slower", 1e12, 1e12)], points))


def test_labels_do_not_cover_each_other():
    points = [Point(f"operation {i}", 1.0 + i / 5, (1 + i % 3) * 1e11) for i in range(12)]
    figure = draw_roofline([ROOF], points)
    figure.canvas.draw()
    texts = [t for t in figure.axes[0].texts if t.get_text().startswith("operation")]
    boxes = [text.get_window_extent() for text in texts]
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_roofline_needs_a_roof_and_intensities():
    assert draw_roofline([ROOF])._repr_png_()
    with pytest.raises(ValueError, match="roofs must hold at least one roof"):
        draw_roofline([])
    with pytest.raises(ValueError, match="intensity of 'copy' must be above 0, got 0"):
        draw_roofline([ROOF], [Point("copy", 0)])


def test_memories_are_to_scale():
    figure = draw_hierarchy(
        [Level("near", 100, 4e12, 30), Level("far", 10_000, 1e12), Level("host", None, 1e9)]
    )
    boxes = [b for b in figure.axes[0].get_children() if isinstance(b, FancyBboxPatch)]
    squares, bars = boxes[:2], boxes[2:]
    assert squares[1].get_width() / squares[0].get_width() == pytest.approx(10)
    assert bars[0].get_width() / bars[1].get_width() == pytest.approx(4)
    assert 0 < bars[2].get_width() < 0.02
    assert "100 bytes, 4.0 TB/s, about 30 cycles" in words(figure)
    assert "10.0 kB, 1.0 TB/s" not in words(figure) and "10 kB, 1.0 TB/s" in words(figure)
    assert "1 GB/s" in words(figure)
    with pytest.raises(ValueError, match="levels"):
        draw_hierarchy([])


def test_waiting_warps_and_the_busy_unit():
    spans = [Span(0, "load", 0, 6), Span(0, "compute", 6, 8), Span(1, "compute", 8, 10)]
    assert "the unit works in 4 of 10 cycles, 40%" in words(draw_latency(spans))
    assert "the unit works in 3 of 9 cycles, 33%" in words(draw_latency(spans, 9))
    assert {"warp 0", "warp 1", "the unit"} <= set(words(draw_latency(spans)))
    with pytest.raises(ValueError, match="spans"):
        draw_latency([])


def test_occupancy_is_drawn_in_stairs():
    figure = draw_occupancy({"registers": [(16, 64), (32, 64), (64, 32)], "KiB": [(0, 64), (9, 0)]})
    assert len(figure.axes) == 3 and figure._repr_png_()
    with pytest.raises(ValueError, match="panels"):
        draw_occupancy({})
