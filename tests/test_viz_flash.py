"""Pictures of notebook 17: who holds what of a tile, and what overlaps on a multiprocessor."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from yaie.course.lessons.data_nb17 import naive, owners, rescales
from yaie.course.viz import film_strip
from yaie.course.viz.page import Picture
from yaie.course.viz.tensor_core import draw_overlap, overlap
from yaie.course.viz.tiles import draw_tile_owners


def drawn(figure) -> bool:
    return isinstance(figure, Picture) and figure._repr_png_()[0].startswith(b"\x89PNG")


def test_who_holds_what_is_drawn():
    row, tile = owners()
    # Every lane has as many scores and sums as a warp of 32 needs to share them evenly.
    assert len(tile.scores) * 32 == tile.keys * tile.warps[0][1]
    assert len(tile.sums) * 32 == tile.dims * tile.warps[0][1]
    assert len(row.sums) * 32 == row.dims
    assert drawn(draw_tile_owners(tile)) and drawn(film_strip([row, tile], draw_tile_owners))


@pytest.mark.parametrize("thread_blocks", [1, 2, 3])
@pytest.mark.parametrize("ahead", [True, False])
def test_no_unit_does_two_things_at_once(thread_blocks, ahead):
    state = overlap(thread_blocks, 7, ahead=ahead)
    assert len(state.products) == 14 and len(state.exponentials) == len(state.copies) == 7
    for bars in (state.products, state.exponentials):
        assert all(one.end <= other.begin for one, other in pairwise(bars))
    done = {(bar.block, bar.name): bar for bar in (*state.products, *state.exponentials)}
    for bar in state.copies:
        scores, exponentials, out = (done[bar.block, f"{name}{bar.name}"] for name in "sxo")
        assert bar.end <= scores.begin
        assert scores.end <= exponentials.begin and exponentials.end <= out.begin
    assert 0 < state.busy <= 1 and drawn(draw_overlap(state))


def test_what_overlaps_saves_time():
    ends = [overlap(1, 8, ahead=False).end, overlap(1, 8).end, overlap(2, 8).end]
    assert ends == sorted(ends, reverse=True) and ends[0] == 8 * (3 + 2 + 2 + 2)
    with pytest.raises(ValueError, match="thread_blocks and tiles must be at least 1, got 0 and 8"):
        overlap(0, 8)


def test_a_maximum_that_moves_late_gives_the_same():
    scores = torch.randn(3, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    counts = []
    for slack in (0.0, 2.0, 100.0):
        count, error = rescales(scores, 10, slack)
        counts.append(count)
        assert error < 1e-12
    assert counts[0] >= counts[1] >= counts[2] == 1


def test_naive_is_attention():
    q, k, v = torch.randn(5, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)
    out, lse = naive(q, k, v)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q[-1:].transpose(0, 1).double(), *(x.transpose(0, 1).double() for x in (k, v)),
        enable_gqa=True,
    )  # fmt: skip
    torch.testing.assert_close(out[-1:], wanted.transpose(0, 1))
    assert lse.shape == (5, 4) and naive(q, k[:3], v[:3])[1][0, 0] == -torch.inf
