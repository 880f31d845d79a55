"""Pictures of notebook 19: a flat tree, a scan, a search, times by batch."""

from __future__ import annotations

import pytest

from yaie.course.lessons.flat_tree import flatten
from yaie.course.viz import (
    FlatView,
    ScanStep,
    Search,
    draw_batch_times,
    draw_flat_tree,
    draw_scan,
    draw_search,
    film_strip,
)
from yaie.engine.radix import RadixTree


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_a_tree_and_its_arrays():
    tree = RadixTree(2)
    tree.insert([11, 12, 13, 14], [50, 51])
    tree.insert([11, 12, 31, 32], [50, 52])
    said = texts(draw_flat_tree(FlatView(flatten(tree), 1)))
    assert {"0:  root", "1:  11 12", "2:  13 14", "3:  31 32"} <= set(said)
    assert said.count("50") == 1 and said.count("11") == 1
    assert "children of 1: 2 nodes, 2 3" in said
    draw_flat_tree(FlatView(flatten(RadixTree())))


def test_a_scan():
    steps = [ScanStep([1, 2], title="given"), ScanStep([1, 3], [(0, 1), (1, 1)], "up")]
    said = texts(draw_scan(steps))
    assert said.count("3") == 1 and "up" in said
    film_strip([steps[:1], steps], draw_scan)
    with pytest.raises(ValueError, match="got none"):
        draw_scan([])
    with pytest.raises(ValueError, match="each step must have 2 values"):
        draw_scan([steps[0], ScanStep([1])])


def test_a_search():
    said = texts(draw_search([Search([3, 5, 5, 9], 5, [1, 3], 3, "bisection")]))
    assert "2 reads" in said and any("token 5 is of request 3" in text for text in said)
    with pytest.raises(ValueError, match="got none"):
        draw_search([])


def test_times_by_batch():
    said = texts(draw_batch_times("a card", {"a loop": {4: 0.05, 32: 0.158}, "one": {4: 0.004}}))
    assert "a loop, 158 µs" in said and "one, 4.0 µs" in said and "a card" in said
    with pytest.raises(ValueError, match="at least one time"):
        draw_batch_times("nothing", {"one": {}})
