"""The last rung for Hopper: every tile, its last round split or not."""

import itertools
import re
import sys
from contextlib import nullcontext

import pytest
import torch
from kernel_cases import HOPPER_PRODUCTS, RTOL
from launches import GPU, HALVES, each_device, each_dtype, same_in_each_order

from yaie.build import jit
from yaie.build.nvcc import CSRC
from yaie.course.core.paths import kept
from yaie.course.lessons.ops.cuda import matrix
from yaie.emulator import settings
from yaie.ops.cuda.launching import SUFFIXES

FILE = "matmul/hopper/shares.cu"
SOURCE = (CSRC / FILE).read_text(encoding="utf-8")
HOPPER = not GPU or torch.cuda.get_device_capability() == (9, 0)
WAYS = range(-1, 2 * len(matrix.TILES))
# Tiles cut off on all sides, in 2 and more parts, of equal steps and not; after whole rounds; and
# so few steps that nothing is split.
SHAPES = [(130, 136, 520), (70, 264, 600), (200, 400, 328), (60, 120, 1000), (5, 16, 24)]


def product(
    a: torch.Tensor, b: torch.Tensor, turned: bool, workers: int, way: int, checked: bool = False
) -> torch.Tensor:
    """a b by the launcher, into NaN, with a workspace of NaN; the tickets are zeros again."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.full((m, n), torch.nan, dtype=a.dtype, device=a.device)
    workspace = torch.full((workers * 128 * 256,), torch.nan, device=a.device)
    tickets = torch.zeros(workers, dtype=torch.int32, device=a.device)
    module = jit.load(FILE, checked, name=str(CSRC / "matmul/hopper/shares.cu"))
    b = b.t().contiguous() if turned else b
    launcher = getattr(module, f"matmul_shares_{SUFFIXES[a.dtype]}")
    launcher(a, b, c, workspace, tickets, m, n, k, int(turned), workers, way)
    assert not tickets.any()
    assert not checked or module.report.clean, module.report
    return c


def factors(shape, dtype, device="cpu"):
    m, n, k = shape
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, generator=generator) for size in ((m, k), (k, n)))
    return a.to(device, dtype), b.to(device, dtype)


def near(got, a, b):
    """Within a rounding, and what tensor cores lose while they add up k products."""
    wanted = a.double().cpu() @ b.double().cpu()
    atol = max(1e-4, 4e-7 * a.shape[1])
    torch.testing.assert_close(got.double().cpu(), wanted, rtol=RTOL[a.dtype], atol=atol)


@each_device
@each_dtype(HALVES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(not HOPPER, reason="wgmma needs sm_90a")
def test_every_way_equals_the_oracle(way, turned, dtype, device):
    """On the emulator the shape, the dtype and the number of thread blocks take turns."""
    shapes = itertools.product(SHAPES, (1, 3, 5, 7))
    for number, (shape, workers) in enumerate(shapes):
        if device == "cuda" or (number + way + turned + HALVES.index(dtype)) % 4 == 0:
            a, b = factors(shape, dtype, device)
            near(product(a, b, turned, workers, way), a, b)


@each_device
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.skipif(not HOPPER, reason="wgmma needs sm_90a")
def test_awkward_sizes(turned, device):
    for shape in HOPPER_PRODUCTS:
        a, b = factors(shape, torch.float16, device)
        near(product(a, b, turned, 3, -1), a, b)


@pytest.mark.parametrize("way", [1, 3, 5, 7])
def test_nothing_is_found_in_checked_mode(way):
    """2, 4 or 6 tiles of 9 steps, in 2 parts each, by turns as b lies."""
    a, b = factors(SHAPES[0], torch.float16)
    near(product(a, b, way % 4 == 1, 13, way, checked=True), a, b)


@pytest.mark.parametrize("way", [1, 7])
def test_parts_are_added_in_one_order(way):
    """Whichever thread block comes last, the bits are the same: 3 parts of each of 1 or 2 tiles."""
    a, b = factors((60, 136, 1000), torch.bfloat16)
    got = same_in_each_order(lambda: (product(a, b, True, 6 if way == 7 else 3, way),))
    near(got[0], a, b)


@pytest.mark.gpu
@pytest.mark.skipif(not (GPU and HOPPER), reason="needs a GPU of compute capability 9.0")
@pytest.mark.parametrize("way", [None, *WAYS[1:]])
def test_launches_follow_each_other(way):
    """As a layer calls it: with as many thread blocks as there are SMs, on weights as they lie,
    many times with the same tickets, the same bits each time, and in a graph."""
    a, weight = factors((200, 1000, 4096), torch.bfloat16, "cuda")
    weight = weight.t().contiguous()
    first = matrix.shares(a, weight.t(), way)
    near(first, a, weight.t())
    for _ in range(20):
        assert torch.equal(matrix.shares(a, weight.t(), way), first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = matrix.shares(a, weight.t(), way)
    for _ in range(3):
        got.fill_(torch.nan)
        graph.replay()
        assert torch.equal(got, first)


# What is there -> what replaces it.
WRONG = {
    "added before all parts are there": ("< work.splits - 1)", "< work.splits - 2)"),
    "the own part is read as well": ("if (from_own && other == part.number) continue;", ""),
    "a part is left out": ("other < work.splits; ++other", "other + 1 < work.splits; ++other"),
    "two parts in one place": ("tile * work.splits + number", "tile + number"),
    "the ticket stays": ("if (thread == 0) *ticket = 0;", ""),
    "one ticket for both consumers": ("tile * CONSUMERS + consumer;", "tile * CONSUMERS;"),
    "one ticket for all tiles": ("tickets + tile * CONSUMERS", "tickets"),
    "steps that overlap": ("steps * (number + 1) / splits", "steps * (number + 1) / splits + 1"),
    "a tile is left out": ("part = {at - number * shared,", "part = {at - number,"),
    "parts before their round": ("int unit = at - (tiles - shared);", "int unit = at - tiles;"),
    "the same columns twice": ("Shape::BY_ROWS ? 0 : consumer * N", "0"),
    "the last 64 columns left out": ("i < 128 && first + i < N;", "i < 128 && first + i + 64 < N;"),
}  # fmt: skip


@pytest.mark.parametrize("fault", [None, *WRONG])
def test_a_wrong_line_shows(fault, monkeypatch):
    """Tiles of 64 × 128: 8 by 7 thread blocks, a round and a tile in 3 parts; and 2 in 3 parts."""
    source = re.sub(r"case [012]: .*|default: .*|turned \? .* : ", "", SOURCE)
    source = source.replace("case 3:", "default:")
    source = re.sub(r'extern "C" cudaError_t \w+_bf16\(.*?\n}\n', "", source, flags=re.DOTALL)
    old, new = WRONG.get(fault, ("FEWEST = 4;", "FEWEST = 4;"))
    assert source.count(old) == 1
    monkeypatch.setattr(sys.modules[__name__], "FILE", source.replace(old, new))
    wrong = pytest.raises((AssertionError, jit.KernelError)) if fault else nullcontext()
    with wrong:
        for shape, workers in (((250, 248, 808), 7), ((60, 248, 1000), 6)):
            a, b = factors(shape, torch.float16)
            for order in ("forward", "reverse"):
                with settings(order=order):
                    near(product(a, b, False, workers, 7), a, b)


CHOSEN = """
extern "C" cudaError_t chosen(int* way, int m, int n, int k, int workers) {
    Way best = best_way(m, n, k, workers);
    *way = best.tile * 2 + (best.splits > 1);
    return cudaSuccess;
}
"""


def test_the_chosen_way_was_about_the_fastest():
    """At most a twentieth slower than the best of all ways, in what was measured on an H100."""
    source = SOURCE[
        : SOURCE.index("template <typename T, typename Shape, bool TURNED>\ncudaError_t")
    ]
    module = jit.load(source + CHOSEN, name=str(CSRC / FILE))
    data = kept("16_hopper_h100")
    steps = [*data["products"].items(), *data["layers"].items()]
    assert len(steps) > 15
    for shape, step in steps:
        way = torch.full((1,), -1, dtype=torch.int32)
        module.chosen(way, *map(int, shape.split(" × ")), data["machine"]["multiprocessors"])
        ms = [step["rows"][name]["ms"] for name in matrix.WAYS]
        assert ms[way.item()] <= 1.05 * min(ms), (shape, way, ms)


def test_what_the_launcher_refuses():
    a, b = factors((8, 8, 8), torch.float16)
    for workers, way in ((0, -1), (1, 10)):
        with pytest.raises(jit.KernelError, match="cudaErrorInvalidValue"):
            product(a, b, False, workers, way)
