"""Warp-specialized code: mbarriers, named barriers, asynchronous operations, whenever they land."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from emulated import launcher

from yaie.emulator import Module, settings
from yaie.emulator.launch import KernelError
from yaie.emulator.runtime import ORDERS

SOURCE = Path(__file__).parent / "emulator" / "async.cu"
TEXT = SOURCE.read_text()
BEGIN = TEXT.index("__global__")
HEAD, RIGHT = TEXT[:BEGIN], TEXT[BEGIN:]
ROUNDS, TILES = 3, 5

# What is replaced by what; the kinds of the findings; what stands in a line of one of them.
FILL, LOAD = "wait(&empty[stage], phase ^ 1);", "load(tile[stage], x + i * 128, &full[stage]);"
EXPECT = "mbarrier_arrive_expect_tx(&full[stage], 512);"
READY, RELEASE = "wait(&full[stage], phase);", "mbarrier_arrive(&empty[stage]);"
FENCE, COMMIT, WAIT = "wgmma_fence();", "wgmma_commit();", "wgmma_wait(0);"
PRODUCT, STAGE = "product(sums, scale, tile[stage], weights);", "staged[t] = sums[0]"
MADE, SYNC = "fence_mbarrier_init();", "    __syncthreads();\n"
WEIGHTS = "weights[t] = w[t];\n    fence_proxy_async();"
STAGED = "staged[t] = sums[0] + 2 * sums[1];\n        fence_proxy_async();"
LATE, AGAIN = "if (t == 0) bulk_wait(0, true);", "named_barrier_sync(2, 128);"
FULL_INIT, EMPTY_INIT = "mbarrier_init(&full[i], 1);", "mbarrier_init(&empty[i], 128);"
LESS, MORE = "setmaxnreg(false, 56);", "setmaxnreg(true, 256);"
FAULTS = {
    # mbarriers
    "consumer waits for the other parity": (READY, "wait(&full[stage], phase ^ 1);", "pending_copy uninitialized deadlock", "phase ^ 1"),
    "consumer's phase does not change": (READY, "wait(&full[stage], 0);", "pending_copy deadlock warp_group", ", 0);"),
    "producer waits for the other parity": (FILL, "wait(&empty[stage], phase);", "deadlock", "phase);"),
    "expects nothing": (EXPECT, "mbarrier_arrive(&full[stage]);", "transaction_bytes pending_copy uninitialized deadlock", LOAD),
    "expects too many bytes": (EXPECT, EXPECT.replace("512", "1024"), "deadlock pending_copy", READY),
    "expects too few bytes": (EXPECT, EXPECT.replace("512", "256"), "transaction_bytes deadlock", LOAD),
    "waits once and goes on": (READY, "mbarrier_try_wait(&full[stage], phase);", "pending_copy", PRODUCT),
    "does not wait for the load": (READY, "", "pending_copy uninitialized", PRODUCT),
    "overwrites without waiting": (FILL, "", "pending_copy mbarrier deadlock", "stage], "),
    "one lane waits for the load": (READY, f"if (t == 0) {READY}", "pending_copy uninitialized", PRODUCT),
    "one thread of 128 arrives": (RELEASE, f"if (t == 0) {RELEASE}", "deadlock", FILL),
    "all arrive where one is expected": (EMPTY_INIT, "mbarrier_init(&empty[i], 1);", "pending_copy deadlock", FILL),
    "is not initialized": (FULL_INIT, "", "mbarrier", EXPECT),
    "is initialized for nobody": (FULL_INIT, "mbarrier_init(&full[i], 0);", "mbarrier", "full[i], 0"),
    "is initialized twice": (FULL_INIT, FULL_INIT * 2, "mbarrier", FULL_INIT),
    "is overwritten": (LESS, f"{LESS} full[0] = 0;", "mbarrier race", EXPECT),
    "no fence after the initialization": (MADE, "", "missing_fence", LOAD),
    "no barrier after the initialization": (SYNC, "", "race mbarrier", "mbarrier_init(&"),
    # products
    "released before the product is done": (WAIT + "\n            " + RELEASE, RELEASE + WAIT, "pending_copy", LOAD),
    "does not wait for the product": (WAIT, "", "pending_registers pending_copy", STAGE),
    "waits for all but one": (WAIT, "wgmma_wait(1);", "pending_registers pending_copy", STAGE),
    "commits nothing": (COMMIT, "", "pending_registers pending_copy", STAGE),
    "writes the accumulators early": (COMMIT, f"sums[0] = 1; {COMMIT}", "pending_registers missing_fence", "sums[0] = 1"),
    "writes fragments early": (WAIT, f"scale[0] = 1; {WAIT}", "pending_registers", "scale[0] = 1"),
    "no fence before the product": (FENCE, "", "missing_fence", PRODUCT),
    "writes fragments after the fence": (FENCE, f"{FENCE} scale[0] = 1;", "missing_fence", PRODUCT),
    "product of three warps": (PRODUCT, f"if (t < 96) {PRODUCT}", "warp_group deadlock", PRODUCT),
    "product of a lane less": (PRODUCT, f"if (t != 70) {PRODUCT}", "warp_group deadlock", PRODUCT),
    "weights not fenced": (WEIGHTS, "weights[t] = w[t];", "missing_fence", "weights[t] = w[t]"),
    "weights fenced before": (WEIGHTS, "fence_proxy_async(); weights[t] = w[t];", "missing_fence", "weights[t] = w[t]"),
    "weights without a barrier": ("named_barrier_sync(1, 128);", "", "race pending_copy", "weights[t]"),
    # stores and named barriers
    "sums not fenced": (STAGED, STAGED.split("\n")[0], "missing_fence", STAGE),
    "sums without a barrier": ("named_barrier_sync(3, 128);", "", "race pending_copy", "store(out"),
    "staged over a store": (LATE, "", "pending_copy", STAGE),
    "staged before others know of it": (LATE + "\n        " + AGAIN, LATE, "pending_copy race", STAGE),
    "store never waited for": ("bulk_wait(0, false)", "", "pending_copy", "store(out"),
    "barrier of too many": (AGAIN, "named_barrier_sync(2, 160);", "deadlock", AGAIN[:20]),
    "barrier of two counts": (AGAIN, "named_barrier_sync(2, t < 64 ? 128 : 64);", "barrier_count", "128 : 64"),
    "barrier of no warps": (AGAIN, "named_barrier_sync(2, 100);", "barrier_count", ", 100"),
    "barrier with no number": (AGAIN, "named_barrier_sync(16, 128);", "barrier_count", "(16,"),
    "barrier that one warp skips": (AGAIN, f"if (t / 32 != 2) {AGAIN}", "deadlock", AGAIN),
    "barriers in two orders": (AGAIN, "if (t < 64) named_barrier_sync(4, 128); named_barrier_sync(2, 128); if (t >= 64) named_barrier_sync(4, 128);", "deadlock", AGAIN),
    # registers
    "registers of one warp": (LESS, f"if (t < 32) {LESS}", "warp_group deadlock", LESS),
    "registers beyond the budget": ("setmaxnreg(false, 24);", "setmaxnreg(true, 240);", "register_budget deadlock", "setmaxnreg(true"),
    "registers no multiple of 8": (LESS, "setmaxnreg(false, 60);", "register_budget", "60"),
    "fewer registers by an increase": (MORE, MORE + "setmaxnreg(true, 128);", "register_budget", "128);"),
}  # fmt: skip


def kernel(number: int, old: str = "", new: str = "") -> str:
    assert RIGHT.count(old) == 1 or not old, old
    text = RIGHT.replace(old, new) if old else RIGHT
    return text.replace("void pipeline(", f"void pipeline{number}(")


TEXTS = [kernel(0)] + [kernel(i, *fault[:2]) for i, fault in enumerate(FAULTS.values(), start=1)]
LAUNCHES = "".join(
    f"    if (which == {i}) pipeline{i}<<<1, 384, 0, stream>>>(x, w, out, rounds);\n"
    for i in range(len(TEXTS))
)
PARAMETERS = "const float* x, const float* w, float* out, int rounds, int which"
SOURCES = HEAD + "".join(TEXTS) + launcher("run", PARAMETERS, LAUNCHES)


@pytest.fixture(scope="module")
def kernels():
    return Module(SOURCES, SOURCE, checked=True)


def run(module, number: int, order: str, seed: int = 1):
    """The kinds and lines of what was found, the error if the kernel was stopped, and the result."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 128, generator=generator) for n in (ROUNDS * TILES, 1))
    out, error = torch.zeros(ROUNDS, 128), ""
    with settings(order=order, seed=seed, time_limit=10):
        try:
            module.run(x, w, out, ROUNDS, number)
        except KernelError as stopped:
            error = str(stopped)
    scaled = x.double() * torch.arange(1, ROUNDS * TILES + 1)[:, None]
    sums = (scaled + 2 * scaled.flip(1)).reshape(ROUNDS, TILES, 128).sum(1) * w.double()
    return error, torch.allclose(out.double(), sums, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found(kernels, name, order):
    number = list(FAULTS).index(name) + 1
    _, _, kinds, inside = FAULTS[name]
    run(kernels, number, order)
    report = kernels.report
    assert report.findings and {f.kind for f in report.findings} <= set(kinds.split()), report
    begins = (HEAD + "".join(TEXTS[:number])).count("\n")
    lines = [i for i, line in enumerate(TEXTS[number].splitlines(), begins + 1) if inside in line]
    told = [line for found in report.findings for line in (found.line, found.other_line)]
    assert set(lines) & set(told), report


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_right_is_right_and_clean_whenever_copies_land(kernels, order, seed):
    error, is_right = run(kernels, 0, order, seed)
    assert not error and is_right and kernels.report.clean, kernels.report
    plain = Module(HEAD + TEXTS[0] + launcher("run", PARAMETERS, LAUNCHES.splitlines()[0]), SOURCE)
    assert run(plain, 0, order, seed) == ("", True)
