"""Pictures of tensor parallelism and of speculative decoding."""

from __future__ import annotations

import pytest
import torch

from yaie.course.viz import HeadShares, Matrix, draw_head_shares, draw_matrices, draw_speculation
from yaie.course.viz.page import png
from yaie.model.shards import heads_of


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize(("size", "num_heads", "num_kv"), [(1, 9, 3), (2, 8, 2), (4, 8, 2)])
def test_every_head_is_shown_where_it_is(size, num_heads, num_kv):
    shares = [heads_of(rank, size, num_heads, num_kv) for rank in range(size)]
    figure = draw_head_shares(HeadShares(num_heads, num_kv, shares))
    shown = texts(figure)
    assert shown.count("0") == 3  # a query head above and at its rank, and a KV head
    assert [word for word in shown if word.startswith("rank")] == [f"rank {r}" for r in range(size)]
    assert png(figure) == png(figure)


def test_heads_that_nobody_has():
    assert "3" in texts(draw_head_shares(HeadShares(4, 2, [([0, 1], [0])])))


def test_matrices_have_one_scale():
    small, large = torch.full((2, 3), 0.5), torch.full((2, 3), 2.0)
    rows = [("sum", [Matrix("a", small, 0), "+", Matrix("b", large, 1), "=", Matrix("c", large)])]
    figure = draw_matrices(rows)
    images = [image for ax in figure.axes for image in ax.images]
    assert len(images) == 3
    assert {(i.norm.vmin, i.norm.vmax) for i in images} == {(-2.0, 2.0)}
    assert {"sum", "a", "+", "b", "=", "c"} <= set(texts(figure))
    draw_matrices([("zero", [Matrix("zero", torch.zeros(1, 1))])])


def test_passes_show_what_was_kept():
    rounds = [(["a", "b", "c"], ["a", "x"]), ([], ["y"]), (["d", "e"], ["d", "e", "z"])]
    figure = draw_speculation(rounds, max_rounds=2)
    shown = texts(figure)
    assert shown[3:] == ["pass 1", "a", "x", "b", "c", "pass 2", "y", "and 1 more"]
    assert draw_speculation([(["$" * 400] * 9, ["\n"])]).get_size_inches()[0] <= 10
