"""Hopper's instructions, by csrc/hopper.cuh, against layouts as the PTX ISA draws them."""

from pathlib import Path

import pytest
import torch

from yaie.build import jit
from yaie.emulator import KernelError, runtime
from yaie.emulator.launch import Module

SOURCE = Path(__file__).parent / "emulator" / "hopper.cu"
SPANS = {0: 16, 1: 32, 2: 64, 3: 128}  # bytes in which a swizzle exchanges chunks


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "checked"])
def module(request):
    return Module(SOURCE.read_text(), SOURCE, checked=request.param)


@pytest.fixture(params=runtime.ORDERS)
def hopper(module, request):
    """The kernels, whose threads run in this order; the checks must find nothing."""
    with runtime.settings(order=request.param, seed=7):
        yield module
    assert module.report is None or module.report.clean, module.report


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exchanged(row: int, byte: int, swizzle: int) -> int:
    """Where a byte of a row of SPANS[swizzle] bytes lies: the number of its 16-byte chunk is xored
    with the number of the 128-byte line."""
    span = SPANS[swizzle]
    return byte if swizzle == 0 else byte ^ (row * span // 128 % (span // 16)) * 16


# ------------------------------------------------------------------------------------------- TMA


@pytest.mark.parametrize(
    ("sizes", "strides", "box", "swizzle", "at"),
    [
        ((1000,), (), (64,), 0, (-3,)),
        ((1000,), (), (256,), 0, (990,)),
        ((1000,), (), (64,), 3, (0,)),
        ((72, 10), (80,), (64, 8), 3, (0, 0)),
        ((72, 10), (80,), (64, 8), 3, (40, 5)),
        ((72, 10), (80,), (64, 16), 3, (-5, -2)),
        ((72, 10), (72,), (32, 12), 2, (50, 3)),
        ((72, 10), (72,), (16, 12), 1, (60, -3)),
        ((72, 10), (72,), (24, 7), 0, (65, 1)),
        ((72, 10), (72,), (64, 4), 3, (72, 0)),  # nothing of it is inside
        ((40, 5, 4), (48, 240), (32, 4, 3), 2, (8, 2, 2)),
        ((64, 6, 3), (64, 384), (64, 8, 2), 3, (0, -1, -1)),
    ],
)
def test_boxes(hopper, sizes, strides, box, swizzle, at):
    """Loaded as the swizzle places them, with zeros past the edges; stored within them only."""
    rank, sizes = len(sizes), (*sizes, 1, 1)[:3]
    strides = (*strides, 1 << 20, 1 << 20)[:2] if rank < 3 else strides
    box, at = (*box, 1, 1)[:3], (*at, 0, 0)[:3]
    length = sizes[0] + sum((sizes[i + 1] - 1) * strides[i] for i in range(rank - 1))
    held, stored = random(length).half(), torch.full((length,), 7.0).half()
    seen = torch.zeros(2 * box[0] * box[1] * box[2], dtype=torch.uint8)
    tensor = held.as_strided(sizes[::-1], (*strides[::-1], 1))
    arguments = (*sizes, *strides, *box, *at)
    hopper.run_move(held, stored, seen, rank, swizzle, *arguments)
    shown, width = seen.view(torch.float16), box[0] * 2
    wanted = torch.full((length,), 7.0).half()
    written = wanted.as_strided(sizes[::-1], (*strides[::-1], 1))
    for z in range(box[2]):
        for y in range(box[1]):
            row = z * box[1] + y
            for x in range(box[0]):
                place = [at[i] + (x, y, z)[i] for i in range(3)]
                inside = all(0 <= p < size for p, size in zip(place, sizes, strict=True))
                value = tensor[tuple(place[::-1])] if inside else 0.0
                byte = row * width + exchanged(row, x * 2, swizzle)
                assert shown[byte // 2] == value, (x, y, z)
                if inside:
                    written[tuple(place[::-1])] = value
    assert torch.equal(stored, wanted)


@pytest.mark.parametrize(
    "changed",
    [
        {"stride_y": 84},  # 168 bytes: no multiple of 16
        {"box_y": 257},
        {"box_y": 0},
        {"box_x": 20},  # 40 bytes
        {"box_x": 128},  # wider than the swizzle
        {"box_x": 32},  # narrower
        {"sizes_y": 0},
        {"shifted": 1},  # data at an odd address
    ],
    ids=str,
)
def test_maps_that_the_driver_refuses(module, changed):
    given = {"sizes_x": 72, "sizes_y": 10, "sizes_z": 1, "stride_y": 80, "stride_z": 1}
    given |= {"box_x": 64, "box_y": 8, "box_z": 1, "x": 0, "y": 0, "z": 0}
    given |= changed
    start = given.pop("shifted", 0)
    held, seen = random(900).half(), torch.zeros(1024, dtype=torch.uint8)
    module.run_move(held, held.clone(), seen, 2, 3, 72, 10, 1, 80, 1, 64, 8, 1, 0, 0, 0)
    with pytest.raises(KernelError, match="cudaErrorInvalidValue"):
        module.run_move(held[start:], held.clone(), seen, 2, 3, *given.values())


# ----------------------------------------------------------------------------------------- wgmma


def image(matrix: torch.Tensor, mn: bool, swizzle: int, leading: int, stride: int) -> torch.Tensor:
    """The bytes of shared memory that hold a matrix [rows of A or columns of B, 16]."""
    span, words = SPANS[swizzle], torch.full((32 * 1024,), torch.nan).to(matrix.dtype)
    for i in range(len(matrix)):
        for k in range(16):
            row, column = (k % 8, i) if mn else (i % 8, k)
            parts = span // 2  # elements of a part's row
            if swizzle == 0:
                byte = i // 8 * stride + k // 8 * leading
            elif mn:
                byte = i // parts * leading + k // 8 * stride
            else:
                byte = i // 8 * stride
            byte += row * span + exchanged(row, column % parts * 2, swizzle)
            words[byte // 2] = matrix[i, k]
    return words[: (byte // 1024 + 1) * 512 + 512].view(torch.uint8)


def layout(count: int, mn: bool, swizzle: int, spaced: int) -> tuple[int, int]:
    """(leading, stride) bytes of a matrix; its parts lie `spaced` times as far apart as needed."""
    part = 8 * SPANS[swizzle]
    if swizzle == 0:
        return part * spaced, 2 * part * spaced
    if mn:
        return 2 * part * spaced, part * spaced
    return 0, part * spaced


KERNELS = [  # whether a and b are MN-major; dtype, columns
    (False, False, torch.float16, 64),
    (False, True, torch.bfloat16, 128),
    (True, False, torch.bfloat16, 192),
    (True, True, torch.float16, 256),
]


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("which", range(4))
def test_products_by_descriptors(hopper, which, swizzle):
    a_mn, b_mn, dtype, n = KERNELS[which]
    a, b, before = random(64, 16).to(dtype), random(n, 16, seed=1).to(dtype), random(128, n // 2)
    of_a, of_b = layout(64, a_mn, swizzle, 2), layout(n, b_mn, swizzle, 1)
    first, second = image(a, a_mn, swizzle, *of_a), image(b, b_mn, swizzle, *of_b)
    both, product = torch.cat((first, second)), a.double() @ b.double().t()
    call, sizes = hopper.run_multiply, (which, both, len(both), len(first))
    c = torch.full((64, n), torch.nan)
    call(*sizes, *of_a, *of_b, swizzle, None, None, c)
    torch.testing.assert_close(c.double(), product, rtol=1e-6, atol=1e-5)
    held = fragments(a)
    call(*sizes, *of_a, *of_b, swizzle, held, before, c)
    sums = product + accumulators(before)
    torch.testing.assert_close(c.double(), sums, rtol=1e-6, atol=1e-5)
    wrong = torch.full((64, n), torch.nan)
    call(*sizes, of_a[0], of_a[1] // 2, *of_b, swizzle, None, None, wrong)
    near = (wrong[:8].double() - product[:8]).abs().amax()
    assert not (wrong.double() - product).abs().amax() < 0.1  # other rows, or gaps, which hold NaN
    if swizzle and not a_mn:
        assert near < 1e-5  # the first part of 8 rows is where it was


def fragments(a: torch.Tensor) -> torch.Tensor:
    """[64, 16] as the registers of 128 threads: 16 rows per warp, four matrices of 8 × 8."""
    rows = a.view(4, 2, 8, 2, 4, 2)  # warp, half, group, half of k, member, one of two
    return rows.permute(0, 2, 4, 3, 1, 5).contiguous().view(torch.int32).view(128, 4)


def accumulators(held: torch.Tensor) -> torch.Tensor:
    """What 128 threads hold as [64, n]: in each 8 columns two neighbors of two rows."""
    parts = held.double().view(
        4, 8, 4, -1, 2, 2
    )  # warp, group, member, columns / 8, half, one of two
    return parts.permute(0, 4, 1, 3, 2, 5).reshape(64, -1)


# --------------------------------------------------------------------------------------- refusals

REFUSED = """
#include "hopper.cuh"
__global__ void __launch_bounds__(128, 1) f(const __grid_constant__ CUtensorMap map, int fault) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint64_t* barrier = reinterpret_cast<uint64_t*>(shared + 1024);
    uint64_t whole = matrix_descriptor(shared, 0, 1024, Swizzle::SPAN_128);
    CUtensorMap other = {};
    float c[32] = {};
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_arrive_expect(barrier, 1024);
        if (fault == 0) tma_load(shared, other, barrier, 0, 0);
        if (fault == 1) tma_load(shared, map, barrier, 0);
        if (fault == 2) tma_load(shared + 16, map, barrier, 0, 0);
        if (fault == 3) tma_store(map, shared + 1024, 0, 0);
    }
    wgmma_fence();
    if (fault == 4) wgmma<__half, 64>(c, whole, whole);
    if (fault == 5) wgmma<__half, 64>(c, whole | 1ull << 49, whole);
}
extern "C" cudaError_t run(const __half* x, int fault, cudaStream_t stream) {
    CUtensorMap map;
    size_t stride = 64, sizes[] = {64, 8};
    int box[] = {64, 8};
    make_tensor_map(&map, x, sizes, &stride, box, Swizzle::SPAN_128);
    f<<<1, 128, 1032, stream>>>(map, fault);
    return cudaGetLastError();
}
"""
TOLD = [
    ("tma_load(shared, other", "TMA's load names no tensor map that was encoded"),
    ("barrier, 0);", "TMA's load has other dimensions than its tensor map"),
    ("shared + 16", "TMA's load needs an address in shared memory that is a multiple of 128"),
    ("shared + 1024, 0", "TMA's store reaches past the end of the launch's dynamic shared memory"),
    ("fault == 4", "a descriptor of wgmma reaches past the end of the .*dynamic shared memory"),
    ("fault == 5", "a descriptor of wgmma has a base offset, which is not emulated"),
]


@pytest.mark.parametrize("fault", range(len(TOLD)))
def test_what_the_chip_refuses_is_told_with_its_line(hopper, fault):
    where, what = TOLD[fault]
    lines = REFUSED.splitlines()
    line = next(n for n, text in enumerate(lines, 1) if where in text)
    module = jit.load(REFUSED, hopper.checked, name=str(SOURCE.parent / "refused.cu"))
    with pytest.raises(KernelError, match=rf"line {line}: {what}"):
        module.run(torch.zeros(8, 64).half(), fault)


# -------------------------------------------------------------------------------------- the others


def test_stored_matrices(hopper):
    numbers, out = torch.arange(256, dtype=torch.int16), torch.zeros(256, dtype=torch.int16)
    hopper.run_store_matrices(numbers, out)
    assert torch.equal(out, numbers)


def test_named_barriers_and_registers(hopper):
    out = torch.zeros(3, 128, dtype=torch.int32)
    hopper.run_hand_over(out)
    assert torch.equal(out, torch.arange(3)[:, None] * 1000 + torch.arange(127, -1, -1))


def test_the_architecture_is_hoppers(module):
    out = torch.zeros(1, dtype=torch.int32)
    module.run_architecture(out)
    assert out.item() == 900
