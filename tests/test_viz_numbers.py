"""Pictures to scale, and the models of keys, tiles and time that some of them are drawn from."""

import math
import random
import struct
from itertools import pairwise
from types import SimpleNamespace

import matplotlib
import pytest
import torch
from matplotlib.patches import FancyBboxPatch, Rectangle
from pictures import (
    LEVELS,
    PICTURES,
    READERS,
    ROOF,
    ROUNDS,
    TALLIES,
    backends,
    calls,
    column,
    reduction,
    words,
)
from pictures import matrices as draw_three_matrices

from yaie.course import viz
from yaie.course.core.memory import Memory
from yaie.course.core.triton import HAS_TRITON, can_watch
from yaie.course.lessons.data_nb18 import naive, owners, rescales
from yaie.course.lessons.online_softmax import OnlineSoftmax
from yaie.course.lessons.ops.reference.flash import flash_backward, flash_forward
from yaie.course.viz.attention import draw_online, record_online
from yaie.course.viz.attention_programs import tiles_of
from yaie.course.viz.draws import ordered_key, rounds
from yaie.course.viz.lanes import Timeline, draw_timeline, finished, started
from yaie.course.viz.memory import statement
from yaie.course.viz.page import png
from yaie.course.viz.paged import Prefix, draw_prefix, draw_readers
from yaie.course.viz.tensor_core import draw_overlap, overlap
from yaie.course.viz.tiles import draw_tile_owners, draw_tiles, record_tiles
from yaie.course.viz.tree_state import compare
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.prefix_cache import RadixCache


def drawn(figure) -> bool:
    return png(figure).startswith(b"\x89PNG") and figure.get_size_inches()[0] <= 10


def bars(figure, color) -> list[Rectangle | FancyBboxPatch]:
    """The bars of a color."""
    face = matplotlib.colors.to_rgba(color)
    found = figure.findobj(lambda a: isinstance(a, Rectangle | FancyBboxPatch))
    return [bar for bar in found if bar.get_facecolor() == face]


def widths(figure, color) -> list[float]:
    """Of the bars of a color, in inches."""
    return [bar.get_width() for bar in bars(figure, color)]


def heights(figure, color) -> list[float]:
    return [bar.get_height() for bar in bars(figure, color)]


# ---------------------------------------------------------------------------------- to scale


def test_points_of_a_roofline_stand_where_they_belong():
    points = [
        viz.Point("memory-bound", 10.0),
        viz.Point("compute-bound", 1000.0),
        viz.Point("measured", 10.0, 5e12),
        viz.Point("faster", 1000.0, 50e12, group="b"),
    ]
    figure = viz.draw_roofline([ROOF], points, "four")
    found: dict[float, list[float]] = {}
    for line in figure.axes[0].lines:
        if line.get_marker() == "o":
            found.setdefault(round(line.get_xdata()[0], 3), []).append(line.get_ydata()[0])
    (left_x, left), (right_x, right) = sorted(found.items())[:2]
    assert len(left) == 2 and len(right) == 2 and left_x < right_x
    # Both were measured at half of what the roof allows: the same step down on a log scale.
    assert max(left) - min(left) == pytest.approx(max(right) - min(right))
    assert min(right) < min(left)  # the roof is higher there, and y points down
    assert {"memory-bound", "compute-bound", "measured", "faster"} <= set(words(figure))


def test_memories_and_counts_are_to_scale():
    figure = viz.draw_hierarchy(LEVELS)
    pipes = [heights(figure, viz.style.series_color(i))[0] for i in range(3)]
    assert pipes[0] / pipes[1] == pytest.approx(4) and 0 < pipes[2] < 0.02
    figure = viz.draw_counts(TALLIES, [" the", " a", "$x$"])
    lengths = widths(figure, viz.style.tint(viz.style.BLUE, 0.7))
    assert len(lengths) == 3  # a count of 0 has no bar
    assert lengths[0] / lengths[1] == pytest.approx(3)
    assert lengths[2] / lengths[0] == pytest.approx(2)


def test_ladders_and_benches_are_to_scale():
    figure = viz.draw_ladder([viz.Rung("a", 0.3, "x"), viz.Rung("b", 0.9, "y")], "lib")
    short, long = widths(figure, viz.style.BLUE)
    assert long / short == pytest.approx(3)


def test_a_log_scale_shows_all_curves():
    chart = viz.Chart("t", "x", "y", {"a": [(1, 0.01)], "b": [(1, 900.0)]}, log_y=True)
    low, high = viz.draw_charts([chart]).axes[1].get_ylim()
    assert low < 0.01 and high > 900


def test_a_log_scale_of_x_is_ticked_at_its_points():
    chart = viz.Chart("t", "x", "y", {"one": [(1, 2.0), (2, 3.0), (64, 9.0)]}, log_x=True)
    labels = viz.draw_charts([chart]).axes[1].get_xticklabels()
    assert [label.get_text() for label in labels] == ["1", "2", "64"]


def test_bars_stand_beside_each_other():
    curves = {"a": [(0, 3.0), (1, 5.0)], "b": [(1, 2.0)]}
    bars = viz.draw_charts([viz.Chart("t", "", "ms", curves, names=["one", "two"])]).axes[1]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["one", "two"]
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars.patches)
    assert len(spans) == 3 and all(a[1] <= b[0] for a, b in pairwise(spans))
    assert [bar.get_height() for bar in bars.patches] == [3.0, 5.0, 2.0]


def test_growth_draws_its_numbers_from_step_1_on():
    (line,) = viz.draw_growth({"FLOPs": {"none": [1, 4, 9]}}).axes[1].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2, 3], [1, 4, 9])


def test_arrivals_are_strokes():
    figure = viz.draw_arrivals({"even": [1.0, 2.0, 3.0], "none": []})
    strokes = [line for line in figure.axes[0].lines if len(set(line.get_xdata())) == 1]
    assert len(strokes) == 3


def test_matrices_have_one_scale():
    images = [image for ax in draw_three_matrices().axes for image in ax.images]
    assert len(images) == 3
    assert {(i.norm.vmin, i.norm.vmax) for i in images} == {(-2.0, 2.0)}


# ---------------------------------------------------------------------------------- what is shown


def test_each_back_end_and_reader_is_shown_as_often_as_it_is_there():
    said = words(viz.draw_backends(backends()))
    assert [w for w in said if w in ("reference", "cuda", "mine")] == ["reference", "cuda", "mine"]
    assert said.count("compiled") == 3 and said.count("needs sm_90a") == 1
    said = words(viz.draw_backends(backends(), ["norm"]))
    assert "add" not in said and "cuda" not in said
    assert words(draw_readers(READERS)).count("·") == 2


def test_each_number_is_written_once():
    said = words(PICTURES["flat tree"][0]())
    assert said.count("50") == said.count("11") == 1
    assert words(PICTURES["scan"][0]()).count("3") == 1
    assert any(
        "SmolLM2-135M-Instruct, float32" in text for text in words(PICTURES["benchmark"][0]())
    )
    assert "2 deep, of 3 partial results" in PICTURES["merge"][0]().alt


@pytest.mark.parametrize("count", [2, 7, 16, 32])
def test_steps_of_a_sum(count):
    said = words(viz.draw_reduction(reduction(count), "place"))
    assert f"{sum(range(count)):g}" in said and "half = 1" in said


@pytest.mark.parametrize(("size", "num_heads", "num_kv"), [(1, 9, 3), (2, 8, 2), (4, 8, 2)])
def test_every_head_is_shown_where_it_is(size, num_heads, num_kv):
    from yaie.model.shards import heads_of

    shares = [heads_of(rank, size, num_heads, num_kv) for rank in range(size)]
    shown = words(viz.draw_head_shares(viz.HeadShares(num_heads, num_kv, shares)))
    assert shown.count("0") == 3  # a query head above and at its rank, and a KV head
    assert [word for word in shown if word.startswith("rank")] == [f"rank {r}" for r in range(size)]


def test_passes_show_what_was_kept():
    shown = words(viz.draw_speculation(ROUNDS, max_rounds=2))
    assert shown[3:] == ["pass 1", "a", "x", "b", "c", "pass 2", "y", "and 1 more"]


def test_nothing_runs_after_a_kernel_that_fails():
    assert words(viz.draw_launches(calls(fails=False))).count("three") == 1
    shown = words(viz.draw_launches(calls(fails=True)))
    assert "two" in shown and "three" not in shown and "wait" in shown
    assert not any("past the end" in word for word in words(viz.draw_grid(viz.Launch(64, 64))))


@pytest.mark.parametrize(("pitch", "wavefronts"), [(32, 32), (33, 1), (34, 2), (36, 4), (40, 8)])
def test_wavefronts_of_a_column(pitch, wavefronts):
    state = column(pitch)
    assert state.wavefronts == wavefronts
    (said,) = [text for text in words(viz.draw_tile_banks(state)) if "fullest bank" in text]
    assert f": {wavefronts} wavefront" in said
    assert viz.TileAccess(dict.fromkeys(range(32), 12), 32).wavefronts == 1  # one word for all


def test_costs_show_whole_statements():
    lines = ["for (int d = 0; d < n; ++d)", "x[d] =", "y[d]  // why", "+ 1;", "if (x) {", "z;"]
    shown = [statement(lines, number) for number in range(1, 7)]
    assert shown[1:4] == ["x[d] = y[d] + 1;", "… y[d] + 1;", "… + 1;"]
    assert shown[4:] == ["if (x) {", "z;"] and shown[0] == "for (int d = 0; d < n; ++d)"


def test_accesses_of_a_line_that_cost_the_same_share_a_row():
    def access(**more):
        usual = {"line": 1, "memory": "shared", "kind": "load", "unit": "wavefronts", "units": 4}
        usual |= {"ideal_units": 4, "per_request": 1.0, "ideal": 1.0}
        return SimpleNamespace(**usual | more)

    three = [access(), access(units=9, ideal_units=9), access()]
    others = [access(kind="store"), access(units=8, per_request=2.0), access(line=2)]
    figure = viz.draw_costs(SimpleNamespace(accesses=three + others, source="a;\nb;"))
    said = [text for text in words(figure) if "wavefront" in text]
    one, two = "1 wavefront", "2 wavefronts"
    assert said == [one, one, two, one]
    assert "3 shared loads" in words(figure)
    assert "1 of 6 accesses costs more than its bytes need" in words(figure)
    assert "for each of 6 accesses; dearer than they must be: line 1, shared load" in figure.alt


def test_panels_fit_a_film_strip():
    tiles = viz.film_strip([column(32), column(33)], viz.draw_tile_banks, ["[32][32]", "[32][33]"])
    states = [Prefix(((3, 7, 0), (3, 7, 2, 5)), 2, 4, once) for once in (False, True)]
    assert drawn(tiles) and drawn(viz.film_strip(states, draw_prefix, ["", ""]))


# ---------------------------------------------------------------------------------- caches


def test_a_block_that_only_begins_alike_is_neither_matched_nor_kept() -> None:
    manager = KVCacheManager(8, 4, num_heads=1, head_dim=1)
    cache = RadixCache(manager.pool, 4)
    prompts = {"a": [1, 2, 3, 4, 5, 6, 7, 8], "b": [1, 2, 3, 4, 5, 6, 9, 9]}
    for name, tokens in prompts.items():
        manager.allocate_blocks(name, len(tokens), cache.match(tokens).values)
        cache.insert(tokens, manager.block_tables[name])
        manager.free_blocks(name)
    prompt = [*prompts["b"], 9]
    assert cache.match(prompt).length == 8
    before = viz.snapshot_cache(manager, cache, matched=prompt[:8])
    matched = compare(before.tree, None)[1].matched
    assert [before.tree.nodes[i].key for i in matched] == [(), (1, 2, 3, 4), (5, 6, 9, 9)]

    cache.evict(1)
    after = viz.snapshot_cache(manager, cache)
    full, marks = compare(after.tree, before.tree)
    [ghost] = [full.nodes[i] for i, tag in marks.tags.items() if tag == "evicted"]
    assert (ghost.key, full.nodes[ghost.parent].key) == ((5, 6, 7, 8), (1, 2, 3, 4))
    assert not ghost.is_rest

    alone = viz.draw_cache(before)
    strip = viz.film_strip([before, after], viz.draw_cache, ["before", "after"])
    assert strip.get_figheight() > alone.get_figheight()
    assert len(alone.axes) == 3  # the page, the tree, the pool
    assert len(after.pool.cached) == cache.num_cached == 2


# ---------------------------------------------------------------------------------- sampling


def test_keys_descend_as_floats_ascend() -> None:
    numbers = random.Random(0)
    values = [numbers.uniform(-1, 1) * 10 ** numbers.randint(-40, 38) for _ in range(500)]
    values += [0.0, math.inf, -math.inf, 1e-45, -1e-45]
    values = sorted({struct.unpack("f", struct.pack("f", value))[0] for value in values})
    keys = [ordered_key(value) for value in values]
    assert keys == sorted(keys, reverse=True) and len(set(keys)) == len(keys)
    assert ordered_key(-0.0) == ordered_key(0.0)


def test_rounds_close_in_on_the_threshold() -> None:
    logits = [3.0, 2.0, 2.0, 1.5, -1.0]
    first, *_, last = state = rounds(logits, [8, 4, 4, 2, 2], threshold=1.5)
    assert [one.tokens for one in state] == sorted((one.tokens for one in state), reverse=True)
    assert first.tokens == 5 and sum(first.shares) == pytest.approx(1.0)
    assert last.tokens == 1 and last.before == pytest.approx(0.8)
    assert sum(last.shares) == last.shares[last.bin] == pytest.approx(0.1)


# ---------------------------------------------------------------------------------- models of time


@pytest.mark.parametrize("equal", [False, True])
def test_each_key_is_somewhere_once_and_no_two_at_a_time(equal):
    chosen = random.Random(0)
    for _ in range(30):
        pieces = tuple((chosen.randrange(5), chosen.randrange(1, 90)) for _ in range(11))
        state = Timeline(pieces, chosen.randrange(1, 9), 1000, equal)
        bars = started(state)
        for sequence in range(5):
            keys = sum(end - begin for _, owner, begin, end in bars if owner == sequence)
            assert keys == sum(length for owner, length in pieces if owner == sequence)
        for processor in range(state.processors):
            mine = sorted((begin, end) for where, _, begin, end in bars if where == processor)
            assert all(one[1] <= other[0] for one, other in pairwise(mine))
        total = sum(keys for _, keys in pieces)
        assert finished(state) >= total / state.processors
        if equal:
            assert finished(state) < total / state.processors + 1
    assert finished(Timeline((), 3, 10)) == 0 and drawn(draw_timeline(Timeline((), 3, 10)))


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


# ---------------------------------------------------------------------------------- attention


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
    assert {"5.000", "5 of 5 scores", "-∞"} <= set(words(draw_online(steps[-1])))
    assert drawn(viz.film_strip(steps, draw_online))
    empty = OnlineSoftmax.empty((1,), 2, like=torch.zeros(0))
    (step,) = record_online(empty, [-math.inf] * 2, torch.ones(2, 2), tile=2)
    assert drawn(draw_online(step))  # a row that sees nothing


@pytest.mark.parametrize("backward", [False, True])
def test_tiles_are_those_that_were_read(backward):
    memory = Memory()
    q, k, v = torch.randn(6, 1, 4), torch.randn(8, 1, 4), torch.randn(8, 1, 4)
    out, lse = flash_forward(q, k, v, True, 0.5, 3, 4)
    placed = [memory.place(x, name) for x, name in zip((q, k, v), "qkv", strict=True)]
    if backward:
        flash_backward(memory.place(out, "dO"), *placed, lse, lse, True, 0.5, 3, 4)
    else:
        flash_forward(*placed, True, 0.5, 3, 4)
    steps = record_tiles(memory.events, 6, 8, causal=True, naive=999)
    # Queries 0 to 2 are at the positions 2 to 4, and see 5 keys; queries 3 to 5 see all 8.
    every = [((a, a + 3), (b, b + 4)) for a in (0, 3) for b in (0, 4)]
    assert [step.current for step in steps] == [*every, None]
    assert list(steps[-1].done) == every
    moved = sum(n for _, n in steps[-1].moved)
    assert moved == memory.read + memory.written
    assert {f"{moved:,}", "999"} <= set(words(draw_tiles(steps[-1])))
    assert drawn(viz.film_strip(steps, draw_tiles))


def test_a_run_without_tiles_is_drawn():
    memory = Memory()
    q = memory.place(torch.randn(6, 4), "q")
    q @ q.T
    steps = record_tiles(memory.events, 6, 6, causal=False)
    assert len(steps) == 1 and drawn(draw_tiles(steps[0]))


@pytest.mark.skipif(not (HAS_TRITON and can_watch()), reason="kernels are not interpreted here")
def test_tiles_of_a_launch():
    from yaie.course.core.triton import tl, triton, watch

    @triton.jit
    def kernel(q_ptr, k_ptr, SIZE: tl.constexpr):
        offsets = tl.arange(0, SIZE * 2)
        tl.load(q_ptr + tl.program_id(0) * SIZE * 2 + offsets)
        for start in range(0, tl.program_id(0) + 1):
            tl.load(k_ptr + start * SIZE * 2 + offsets)

    with watch() as trace:
        kernel[(2, 1)](torch.zeros(8, 2), torch.zeros(8, 2), SIZE=4)
    found = tiles_of(trace, 0, 8, 8, 2, 2, causal=True)
    assert found.tiles == ((0, (0, 4), (0, 4)), (1, (4, 8), (0, 4)), (1, (4, 8), (4, 8)))


def test_who_holds_what_is_drawn():
    row, tile = owners()
    # Every lane has as many scores and sums as a warp of 32 needs to share them evenly.
    assert len(tile.scores) * 32 == tile.keys * tile.warps[0][1]
    assert len(tile.sums) * 32 == tile.dims * tile.warps[0][1]
    assert len(row.sums) * 32 == row.dims
    assert drawn(viz.film_strip([row, tile], draw_tile_owners))


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
    turned = [x.transpose(0, 1).double() for x in (q[-1:], k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*turned, enable_gqa=True)
    torch.testing.assert_close(out[-1:], wanted.transpose(0, 1))
    assert lse.shape == (5, 4) and naive(q, k[:3], v[:3])[1][0, 0] == -torch.inf
