"""Faults around wgmma and TMA by csrc/hopper.cuh: registers in use, fences, a kernel's end."""

import re

import pytest
import torch

from yaie.build.nvcc import CSRC
from yaie.emulator import Module, settings
from yaie.emulator.runtime import ORDERS

HEAD = """
#include "hopper.cuh"
__device__ __forceinline__ void by_reference(float (&c)[32], const uint32_t& first,
                                             const uint32_t& second, uint64_t b) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, %8, 0;"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, "
                 "{%4, %5, %4, %5}, %6, add, 1, 1, %7;}"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(first), "r"(second), "l"(b), "n"(0), "r"(1)
                 : "memory");
}
"""
PRODUCT = """
__global__ void __launch_bounds__(256, 1) k{0}(const float* x, float* out, CUtensorMap) {{
    extern __shared__ __align__(1024) float staged[];
    for (int i = threadIdx.x; i < 1024; i += 128) reinterpret_cast<__half*>(staged)[i] = i % 8;
    fence_proxy_async();
    __syncthreads();
    uint64_t b = matrix_descriptor(staged, 128, 256, Swizzle::NONE);
    float c[32] = {{}}, sum = 0;
    uint32_t kept[4];
    for (int i = 0; i < 4; ++i) kept[i] = 0x3c003c00;
    {1}
    for (int i = 0; i < 32; ++i) sum += c[i];
    out[threadIdx.x] = sum;
}}
"""
COPY = """
__global__ void __launch_bounds__(256) k{0}(const float* x, float* out,
                                             const __grid_constant__ CUtensorMap map) {{
    extern __shared__ __align__(1024) float staged[];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x;
    if (t == 0) mbarrier_init(&full, 1), mbarrier_init(&empty, 128), fence_mbarrier_init();
    __syncthreads();
    {1}
}}
"""
START, ALL = "wgmma_fence(); wgmma<__half, 64>(c, kept, b); wgmma_commit();", "wgmma_wait<0>();"
IN_TURNS = """for (int i = 0; i < 3; ++i) {
        uint32_t a[4];
        for (int j = 0; j < 4; ++j) a[j] = kept[j];
        wgmma_fence(); wgmma<__half, 64>(c, a, b); wgmma_commit();
    }"""
TEMPORARY = """wgmma_fence();
    for (int i = 0; i < 3; ++i) {
        by_reference(c, kept[0] + i, kept[1] + i, b);
        wgmma_commit();
    }"""
WRITE, FENCE, BARRIER = "staged[t] = x[t];", "fence_proxy_async();", "__syncthreads();"
STORE = "if (t == 0) { tma_store(map, staged, 0); tma_store_commit(); tma_store_wait<0>(); }"
LOAD = "if (t == 0) mbarrier_arrive_expect(&full, 512), tma_load(staged, map, &full, 0);"
SEEN = f"{LOAD} mbarrier_wait(&full, 0);"
GLOBAL = 'asm volatile("fence.proxy.async.global;\\n" ::: "memory");'
RIGHT = {
    "a product": (PRODUCT, START + ALL),
    "fragments changed after the wait": (PRODUCT, START + ALL + "kept[1] = 0;" + START + ALL),
    "fragments of each turn of a loop": (PRODUCT, IN_TURNS + ALL),
    "fragments that are temporary": (PRODUCT, TEMPORARY + ALL),
    "fragments of each turn, with values": (PRODUCT, IN_TURNS.replace(
        "a[4];", "a[4] = {kept[0], kept[1], kept[2], kept[3]};").replace(
        "for (int j = 0; j < 4; ++j) a[j] = kept[j];", "") + ALL),
    "fragments read": (PRODUCT, START + "uint32_t first = kept[0];" + ALL + "sum += first;"),
    "fence, barrier, store": (COPY, WRITE + FENCE + BARRIER + STORE),
    "barrier, own fence, store": (COPY, WRITE + BARRIER + f"if (t == 0) {FENCE}" + STORE),
    "another's fence": (COPY, WRITE + BARRIER + f"if (t == 9) {FENCE}" + BARRIER + STORE),
    "global memory": (COPY, "out[t] = x[t];" + GLOBAL + BARRIER + SEEN),
    "a read, then a load": (COPY, WRITE + FENCE + BARRIER + "out[t] = staged[t];" + GLOBAL
                            + BARRIER + SEEN),
}  # fmt: skip
WRONG = {  # the kind, what stands in the line, and what is told of it
    "a fragment changed": (
        "pending_registers", PRODUCT, START + "\nkept[2] = 7;\n" + ALL, "kept[2]",
        "writes fragments of the wgmma of line .* before it has been waited for",
    ),
    "a fragment changed under the second product": (
        "pending_registers", PRODUCT, START * 2 + "wgmma_wait<1>();\nkept[2] = 7;\n" + ALL,
        "kept[2]", "writes fragments",
    ),
    "an accumulator read": (
        "pending_registers", PRODUCT, START + "\nsum = c[5];\n" + ALL, "sum = c", "reads accum",
    ),
    "an accumulator written": (
        "pending_registers", PRODUCT, START + "\nc[5] = 1;\n" + ALL, "c[5]", "writes accumulators",
    ),
    "a fragment written after the fence": (
        "missing_fence", PRODUCT,
        START + ALL + "wgmma_fence();\nkept[3] = 1;\n" + START.partition(";")[2] + ALL,
        "kept[3]", "no wgmma.fence follows line .*, which writes its fragments",
    ),
    "the end": (
        "pending_registers", PRODUCT, "\n" + START + "\nif (x) return;", "wgmma_commit",
        "still runs when thread .* ends",
    ),
    "the end of one warp group of two": (
        "pending_registers", PRODUCT, "\n" + START + "\nif (threadIdx.x < 128) return;" + ALL,
        "wgmma_commit", "still runs when thread .* ends",
    ),
    "no fence": ("missing_fence", COPY, WRITE + BARRIER + "\n" + STORE, "tma_store", "reads stag"),
    "only the issuer's fence, before the barrier": (
        "missing_fence", COPY, WRITE + f"if (t == 0) {FENCE}" + BARRIER + "\n" + STORE,
        "tma_store", "reads staged",
    ),
    "another's fence without a second barrier": (
        "missing_fence", COPY, WRITE + BARRIER + f"if (t == 9) {FENCE}\n" + STORE,
        "tma_store", "reads staged",
    ),
    "a fence after the arrival": (
        "missing_fence", COPY, WRITE + f"mbarrier_arrive(&empty); {FENCE}"
        "if (t == 0) mbarrier_wait(&empty, 0);\n" + STORE, "tma_store", "reads staged",
    ),
    "a write after fence and barrier": (
        "missing_fence", COPY, WRITE + FENCE + BARRIER + "\nif (t == 0) staged[0] = 1;\n" + STORE,
        "staged[0]", "reads staged",
    ),
    "a load over a write": (
        "missing_fence", COPY, WRITE + BARRIER + "\n" + SEEN, "tma_load", "writes staged",
    ),
    "a fence of shared memory for global memory": (
        "missing_fence", COPY, "out[t] = x[t];" + FENCE + BARRIER + "\n" + SEEN, "tma_load",
        "reads out.*, and no fence.proxy.async of global memory stands between the two",
    ),
    "a fence of global memory for shared memory": (
        "missing_fence", COPY, WRITE + GLOBAL + BARRIER + "\n" + STORE, "tma_store", "reads staged",
    ),
}  # fmt: skip
ALL_CASES = {**RIGHT, **{name: row[1:3] for name, row in WRONG.items()}}
SOURCE = (
    HEAD
    + "".join(kernel.format(i, code) for i, (kernel, code) in enumerate(ALL_CASES.values()))
    + """extern "C" cudaError_t run(const float* x, float* out, int which, cudaStream_t stream) {
    CUtensorMap map;
    size_t sizes[] = {128};
    int box[] = {128};
    cudaError_t error = make_tensor_map(&map, out, sizes, (size_t*)nullptr, box, Swizzle::NONE);
    if (error != cudaSuccess) return error;
"""
    + "".join(
        f"    if (which == {i}) k{i}<<<1, {256 if 'of two' in name else 128}, 2048, stream>>>"
        "(x, out, map);\n"
        for i, name in enumerate(ALL_CASES)
    )
    + "    return cudaGetLastError();\n}\n"
)


@pytest.fixture(scope="module")
def module():
    return Module(SOURCE, CSRC / "wgmma_faults.cu", checked=True)


def run(module, name: str, order: str):
    with settings(order=order, seed=5):
        module.run(torch.ones(128), torch.zeros(256), list(ALL_CASES).index(name))
    return module.report


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_accused(module, name):
    for order in ORDERS:
        report = run(module, name, order)
        assert report.clean, (order, report)


@pytest.mark.parametrize("name", WRONG)
def test_the_fault_is_told_with_its_line(module, name):
    kind, _, _, inside, words = WRONG[name]
    number = list(ALL_CASES).index(name)
    for order in ORDERS:
        report = run(module, name, order)
        told = [found for found in report.findings if found.kind == kind]
        assert told and {found.kind for found in report.findings} == {kind}, (order, report)
        lines = SOURCE.splitlines()
        begin = next(i for i, line in enumerate(lines) if f" k{number}(" in line)
        line = next(i for i in range(begin, len(lines)) if inside in lines[i]) + 1
        assert line in (told[0].line, told[0].other_line), (order, report)
        assert re.search(words, told[0].message), told[0].message


def test_a_kernel_that_ends_under_a_product_ends(module):
    """Also without checks, and with thread blocks that use its stacks after it."""
    plain = Module(SOURCE, CSRC / "wgmma_faults.cu")
    for order in ORDERS:
        with settings(order=order):
            for name in ("the end", "the end of one warp group of two"):
                plain.run(torch.ones(128), torch.zeros(256), list(ALL_CASES).index(name))
