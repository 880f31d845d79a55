"""Asynchronous copies land as late as allowed: what does not wait for them is reported."""

import pytest
import torch
from emulated import launcher

from yaie.emulator import Module, runtime

RIGHT = """
__global__ void sums(float* x, float* out, int tiles) {
    __shared__ __align__(16) float stages[STAGES][THREADS * 4];
    int t = threadIdx.x;
    auto start = [&](int tile) {
        int zeros = tile < tiles ? 0 : 16;
        float* to = &stages[tile % STAGES][t * 4];
        __pipeline_memcpy_async(to, x + tile * THREADS * 4 + t * 4, 16, zeros);
        __pipeline_commit();
    };
    float sum = 0;
    for (int tile = 0; tile < STAGES - 1; ++tile) start(tile);
    for (int tile = 0; tile < tiles; ++tile) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        start(tile + STAGES - 1);
        for (int i = 0; i < 4; ++i) sum += stages[tile % STAGES][i * THREADS + t];
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    stages[0][t] = sum;
    __syncthreads();
    out[t] = stages[0][t];
}
"""
WAIT, START = "__pipeline_wait_prior(STAGES - 2);", "start(tile + STAGES - 1);"
BARRIER, LAST, COMMIT = (
    "\n        __syncthreads();",
    "__pipeline_wait_prior(0);",
    "__pipeline_commit();",
)
FILL = "++tile) start(tile);"
READ, STORE, COPY = "sum += stages[tile % STAGES][i", "stages[0][t] = sum", "_memcpy_async(to"
# name: what is replaced, by what, and what is in the line of the fault.
FAULTS = {
    "waits for too few": (WAIT, "__pipeline_wait_prior(STAGES - 1);", READ),
    "does not wait": (WAIT, "", READ),
    "closes no group": (COMMIT, "", READ),
    "closes no empty group": (COMMIT, f"if (!zeros) {COMMIT}", READ),
    "one group for two tiles": (COMMIT, f"if (tile % 2) {COMMIT}", READ),
    "reads its own chunk": (WAIT, "sum += 0 * stages[tile % STAGES][t * 4];", "0 * stages"),
    "waits after the barrier": (WAIT + BARRIER, BARRIER + WAIT, READ),
    "no barrier after the wait": (WAIT + BARRIER, WAIT, READ),
    "copies over what is read": (START, "start(tile + STAGES);", READ),
    "copies twice": (START, f"{START} {START}", COPY),
    "writes what is being copied": (FILL, f"{FILL}\n    x[t * 4] = 0;", "] = 0;"),
    "writes over a copy": (START, f"{START}\n    stages[(tile + 2) % STAGES][t] = 0;", "] = 0;"),
    "leaves copies in flight": (LAST, "", STORE),
    "no barrier at the end": (f"{LAST}\n    __syncthreads();", LAST, STORE),
}
# Whether another thread's copy has landed when it is read, without a barrier, depends on the order.
ALSO_RACES = {"waits after the barrier", "no barrier after the wait", "copies over what is read",
              "no barrier at the end"}  # fmt: skip
HEAD = """#include <cuda_pipeline.h>
#include <cuda_runtime.h>
constexpr int STAGES = 3, THREADS = 64;
"""
TILES = 6


def kernel(number: int, old: str = "", new: str = "") -> str:
    assert RIGHT.count(old) == 1 or not old, old
    text = RIGHT.replace(old, new) if old else RIGHT
    call = f"    sums{number}<<<1, THREADS, 0, stream>>>(x, out, tiles);"
    text = text.replace("void sums(", f"void sums{number}(")
    return text + launcher(f"run{number}", "float* x, float* out, int tiles", call)


TEXTS = [kernel(0)] + [kernel(i, *fault[:2]) for i, fault in enumerate(FAULTS.values(), start=1)]
SOURCE = HEAD + "".join(TEXTS)


@pytest.fixture(scope="module")
def kernels():
    return Module(SOURCE, "copies.cu", checked=True)


def run(kernels, number: int, order: str):
    """The report, and whether every sum is right."""
    x = torch.randn(TILES, 4, 64, generator=torch.Generator().manual_seed(0))
    wanted, out = x.double().sum((0, 1)), torch.zeros(64)
    with runtime.settings(order=order, seed=3):
        getattr(kernels, f"run{number}")(x, out, TILES)
    return kernels.report, torch.allclose(out.double(), wanted, atol=1e-4)


@pytest.mark.parametrize("order", runtime.ORDERS)
@pytest.mark.parametrize("name", FAULTS)
def test_what_does_not_wait_is_reported(kernels, name, order):
    number = list(FAULTS).index(name) + 1
    inside = FAULTS[name][2]
    report, _ = run(kernels, number, order)
    kinds = {finding.kind for finding in report.findings}
    assert kinds and kinds <= {"pending_copy", *["race"] * (name in ALSO_RACES)}, report
    begins = (HEAD + "".join(TEXTS[:number])).count("\n")
    lines = TEXTS[number].splitlines()
    (line,) = (begins + i for i, text in enumerate(lines, start=1) if inside in text)
    assert any(line in (found.line, found.other_line) for found in report.findings), report


@pytest.mark.parametrize("order", runtime.ORDERS)
def test_what_waits_is_right_and_clean(kernels, order):
    report, is_right = run(kernels, 0, order)
    assert report.clean and is_right, report


def test_copies_land_as_late_as_allowed(kernels):
    """So a result is wrong if it was read too early, with and without the checks."""
    plain = Module(SOURCE, "copies.cu")
    for number, is_right in ((0, True), (1, False), (2, False), (3, False)):
        for module in (kernels, plain):
            assert run(module, number, "forward")[1] == is_right
    assert run(plain, 2, "reverse")[1]  # in which they land immediately


def test_the_sentence_names_both_lines(kernels):
    report, _ = run(kernels, 2, "forward")
    begins = (HEAD + "".join(TEXTS[:2])).count("\n")
    copy, read = (
        begins + next(i for i, text in enumerate(TEXTS[2].splitlines(), start=1) if part in text)
        for part in (COPY, READ)
    )
    assert report.findings[0].message == (
        f"In line {read} thread 0 reads stages[0][0] before the asynchronous copy to it, which it "
        f"started in line {copy}, has been waited for (256 times)."
    )


PARTLY_ZERO = """
__global__ void half(const float* x, float* out) {
    __shared__ __align__(16) float s[4];
    __pipeline_memcpy_async(s, x + 2, 16, 8);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[0] = s[0];
}
"""


def test_the_source_of_a_copy_is_aligned_to_its_whole_size():
    text = HEAD + PARTLY_ZERO
    text += launcher("go", "const float* x, float* out", "    half<<<1, 1, 0, stream>>>(x, out);")
    module = Module(text, "half.cu", checked=True)
    module.go(torch.ones(8), torch.zeros(1))
    (found,) = module.report.findings
    assert found.kind == "misaligned" and "no multiple of 16, byte 8 of x" in found.message
