"""What notebook 25 computes: descriptors, places of sums, rounds of tiles, a replayed trace."""

from contextlib import suppress

import pytest
import torch

from yaie.build import jit
from yaie.build.jit import CSRC, KernelError
from yaie.course.lessons import data_nb25, rounds
from yaie.course.lessons.data_nb25 import Event, Trace, replay, trace
from yaie.course.lessons.descriptor import matrix_descriptor, step_descriptors
from yaie.emulator import Module

FOLDER = CSRC / "matmul" / "hopper"
SPANS = (0, 32, 64, 128)
PROBE = """
#include "matmul/hopper/tiles.cuh"
__global__ void pack(int leading, int stride, int span, int64_t* out) {
    extern __shared__ __align__(1024) char tiles[];
    const Swizzle modes[] = {Swizzle::NONE, Swizzle::SPAN_32, Swizzle::SPAN_64, Swizzle::SPAN_128};
    out[0] = shared_address(tiles + 4096);
    out[1] = matrix_descriptor(tiles + 4096, leading, stride, modes[span]);
}
extern "C" cudaError_t pack_i64(int leading, int stride, int span, int64_t* out,
                                cudaStream_t stream) {
    pack<<<1, 1, 8192, stream>>>(leading, stride, span, out);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("span", SPANS)
def test_a_descriptor_is_that_of_the_header(span):
    module, out = jit.load(PROBE, name="pack.cu"), torch.zeros(2, dtype=torch.int64)
    for leading, stride in ((0, 1024), (8192, 1024), (2**18 - 16, 2**18 - 32)):
        module.pack_i64(leading, stride, SPANS.index(span), out)
        address, bits = out.tolist()
        assert matrix_descriptor(address, leading, stride, span) == bits % 2**64


def test_the_bytes_of_a_step_are_those_of_its_k():
    """The addresses of element (row, k) of a and (k, column) of b, counted in the tiles."""
    for step in range(4):
        a, b = step_descriptors(1024, 17_408, step)
        assert ((a & 0x3FFF) << 4) - 1024 == 2 * (16 * step)
        assert ((b & 0x3FFF) << 4) - 17_408 == 2 * (16 * step) * 64
        parts, eight = (b >> 16 & 0x3FFF) << 4, (b >> 32 & 0x3FFF) << 4
        assert (parts, eight) == (2 * 64 * 64, 2 * 8 * 64)


def test_sums_lie_as_ptx_says():
    """Thread t, register r of D of wgmma.m64nNk16, by the formula of the PTX ISA."""
    held = data_nb25.accumulator_places()
    for thread in range(128):
        for register in range(32):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register % 4 // 2)
            column = 8 * (register // 4) + 2 * (thread % 4) + register % 2
            assert held[thread, register].tolist() == [row, column]


@pytest.mark.parametrize("way", [rounds.work_of, rounds.whole_tiles, rounds.equal_shares])
@pytest.mark.parametrize("grid", [(132, 192, 64), (7, 30, 9), (132, 64, 224), (5, 3, 1), (1, 4, 9)])
def test_every_step_is_computed_once(way, grid):
    blocks, tiles, steps = grid
    work = [way(block, *grid) for block in range(blocks)]
    done = sorted(
        (part.tile, step)
        for parts in work
        for part in parts
        for step in range(part.first, part.last)
    )
    assert done == [(tile, step) for tile in range(tiles) for step in range(steps)]
    assert 0 < rounds.busy(work) <= 1 and rounds.finish(work) * blocks >= tiles * steps


def test_the_last_round_is_that_of_the_kernel():
    """Of shares.cu: the constant, and what its lines say of a thread block's parts."""
    source = " ".join((FOLDER / "shares.cu").read_text().split())
    assert f"constexpr int FEWEST = {rounds.FEWEST};" in source
    assert "splits = rest ? min(workers / rest, steps / FEWEST) : 0" in source
    assert "number = unit < 0 ? 0 : unit / shared" in source
    for blocks, tiles, steps in ((132, 192, 64), (8, 11, 33)):
        rest = tiles % blocks
        splits = min(blocks // rest, steps // rounds.FEWEST)
        for block in range(blocks):
            at, found = block, []
            while (unit := at - (tiles - rest)) < rest * splits:
                number = 0 if unit < 0 else unit // rest
                first, last = steps * number // splits, steps * (number + 1) // splits
                found.append((at, 0, steps) if unit < 0 else (at - number * rest, first, last))
                at += blocks
            assert found == [tuple(part) for part in rounds.work_of(block, blocks, tiles, steps)]


def test_splitting_the_last_round_keeps_neighbors_at_one_k():
    grid = 132, 192, 64
    ways = (rounds.whole_tiles, rounds.work_of, rounds.equal_shares)
    work = [[way(block, *grid) for block in range(132)] for way in ways]
    assert [rounds.apart(one, 70) for one in work[:2]] == [1, 2]
    assert rounds.apart(work[2], 70) > 5


def test_a_replayed_trace_waits_for_what_it_waits_for():
    """Two places, copies of 3 and products of 1: by hand."""
    events = [Event("wait", 2 * 2 + 1, 0), Event("waited", 2, 0), Event("expect", 0, 0)]
    events += [Event("wait", 3 * 2 + 1, 0), Event("waited", 3, 0), Event("expect", 1, 0)]
    events += [Event("wait", 2 * 2, 0), Event("waited", 2, 0), Event("expect", 0, 0)]
    consumer = []
    for tile in range(3):
        consumer += [Event("wait", tile % 2 * 2 + tile // 2 % 2, 0), Event("commit", 0, 0)]
        consumer += [Event("products", 1, 0)]
        consumer += [Event("arrive", 2 + (tile - 1) % 2, 0)] if tile else []
    consumer += [Event("products", 0, 0)]
    done = replay(Trace(2, (tuple(events), tuple(consumer))))
    products = [(s.begin, s.end) for s in done.spans if s.kind == "product"]
    copies = [(s.lane, s.begin, s.end) for s in done.spans if s.kind == "copy"]
    assert products == [(3, 4), (4, 5), (7, 8)]
    assert copies == [("stage 0", 0, 3), ("stage 1", 0, 3), ("stage 0", 4, 7)]
    assert done.end == 8 and done.busy == 3 / 8
    with pytest.raises(ValueError, match="waits for another"):
        replay(Trace(2, ((*events[:1], Event("wait", 0, 0)), ())))


@pytest.mark.parametrize("rung", ["tma", "stages", "producer"])
def test_a_rungs_trace_has_every_tile(rung):
    traced = trace(FOLDER / f"{rung}.cu", tiles=8)
    for kind in ("expect", "commit"):
        assert sum(event.what == kind for events in traced.events for event in events) == 8
    loads = [event.number for events in traced.events for event in events if event.what == "load"]
    assert loads == [tile % traced.stages for tile in range(8) for _ in range(3)]
    with pytest.raises(ValueError, match="once"):
        trace(FOLDER / "tiles.cuh", tiles=1)


def test_a_launch_after_a_crash_is_not_accused_of_its_work():
    path = FOLDER / "wgmma.cu"
    text = path.read_text()
    a, b = torch.ones(72, 192).half(), torch.ones(192, 128).half()
    for source, clean in ((text.replace("wgmma_commit();", ""), False), (text, True)):
        module, c = Module(source, path, checked=True, apart=True), torch.zeros(72, 128).half()
        with suppress(KernelError):
            module.matmul_wgmma_f16(a, b, c, 72, 128, 192)
        assert module.report.clean == clean, module.report
    assert (c == 192).all()
