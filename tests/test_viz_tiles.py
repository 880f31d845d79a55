"""Pictures of the online softmax, of merges and of tiles: what they record, and that they draw."""

from __future__ import annotations

import math

import pytest
import torch

from yaie.course.core.memory import Memory
from yaie.course.lessons.ops.reference.flash import flash_backward, flash_forward, key_tiles
from yaie.course.viz import film_strip
from yaie.course.viz.attention import draw_online, record_online
from yaie.course.viz.curves import draw_tile_bytes
from yaie.course.viz.page import Picture
from yaie.course.viz.steps import MergeNode, count_leaves, depth, draw_merge
from yaie.course.viz.tiles import draw_key_tiles, draw_tiles, record_tiles
from yaie.ops.reference.online_softmax import OnlineSoftmax


def drawn(figure) -> bool:
    return isinstance(figure, Picture) and figure._repr_png_()[0].startswith(b"\x89PNG")


def test_online_steps():
    scores = [1.0, 3.0, -math.inf, 2.0, 5.0]
    state = OnlineSoftmax.empty((1,), 2, like=torch.zeros(0))
    steps = record_online(state, scores, torch.ones(5, 2), tile=2)
    assert [(s.start, s.end, s.maximum, s.before) for s in steps] == [
        (0, 2, 3.0, -math.inf),
        (2, 4, 3.0, 3.0),
        (4, 5, 5.0, 3.0),
    ]
    assert [round(s.rescale, 4) for s in steps] == [0.0, 1.0, round(math.exp(-2), 4)]
    assert steps[-1].total == pytest.approx(sum(math.exp(s - 5) for s in scores))
    assert drawn(film_strip(steps, draw_online))


def test_a_row_that_sees_nothing_is_drawn():
    state = OnlineSoftmax.empty((1,), 2, like=torch.zeros(0))
    (step,) = record_online(state, [-math.inf] * 2, torch.ones(2, 2), tile=2)
    assert drawn(draw_online(step))


def test_merge_tree():
    leaves = [MergeNode(f"keys {i}", float(i), 0.5) for i in range(3)]
    leaves[0] = MergeNode("none", -math.inf, 0.0)
    root = MergeNode("all", 2.3, 0.5, (MergeNode("two", 1.0, 0.5, tuple(leaves[:2])), leaves[2]))
    assert (depth(root), count_leaves(root)) == (2, 3)
    assert drawn(draw_merge(root))


def run(backward: bool = False):
    memory = Memory()
    q, k, v = torch.randn(6, 1, 4), torch.randn(8, 1, 4), torch.randn(8, 1, 4)
    out, lse = flash_forward(q, k, v, True, 0.5, 3, 4)
    placed = [memory.place(x, name) for x, name in zip((q, k, v), "qkv", strict=True)]
    if backward:
        flash_backward(memory.place(out, "dO"), *placed, lse, lse, True, 0.5, 3, 4)
    else:
        flash_forward(*placed, True, 0.5, 3, 4)
    return memory, record_tiles(memory.events, 6, 8, causal=True, naive=999)


@pytest.mark.parametrize("backward", [False, True])
def test_tiles_are_those_that_were_read(backward):
    memory, steps = run(backward)
    # Queries 0 to 2 are at the positions 2 to 4, and see 5 keys; queries 3 to 5 see all 8.
    every = [((a, a + 3), (b, b + 4)) for a in (0, 3) for b in (0, 4)]
    assert [step.current for step in steps] == [*every, None]
    assert list(steps[-1].done) == every
    assert sum(n for _, n in steps[-1].moved) == memory.read + memory.written
    assert drawn(film_strip(steps, draw_tiles))


def test_a_run_without_tiles_is_drawn():
    memory = Memory()
    q = memory.place(torch.randn(6, 4), "q")
    q @ q.T
    steps = record_tiles(memory.events, 6, 6, causal=False)
    assert len(steps) == 1 and drawn(draw_tiles(steps[0]))


def test_key_tiles_and_bytes_are_drawn():
    rows = [(start, *key_tiles(start, min(start + 3, 9), 10, 4)) for start in range(0, 10, 4)]
    assert drawn(draw_key_tiles(rows, 10, 10, 4, 4))
    assert drawn(draw_tile_bytes({8: 100, 16: 50}, {"formula": {8: 90, 16: 45}}, {"least": 10}))
    with pytest.raises(ValueError, match="counted must hold at least one point"):
        draw_tile_bytes({}, {}, {})
