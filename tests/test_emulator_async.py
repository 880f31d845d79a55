"""Warp-specialized code: mbarriers, named barriers, asynchronous operations, whenever they land."""

import re
from pathlib import Path

import pytest
import torch
from emulated import launcher, with_launchers

from yaie.emulator import Module, settings
from yaie.emulator.launch import KernelError
from yaie.emulator.runtime import ORDERS

SOURCE = Path(__file__).parent / "emulator" / "async.cu"
TEXT = SOURCE.read_text()
BEGIN = TEXT.index("__global__")
HEAD, RIGHT = TEXT[:BEGIN], TEXT[BEGIN:]
ROUNDS, TILES = 3, 5

FAULTS = {
    row.partition(" | ")[0]: row.split(" | ")[1:]
    for row in SOURCE.with_suffix(".faults").read_text().splitlines()
    if not row.startswith("#")
}


def kernel(number: int, old: str = "", new: str = "") -> str:
    pattern = re.sub(r"(\\ )+", r"\\s+", re.escape(old))
    assert len(re.findall(pattern, RIGHT)) == 1 or not old, old
    text = re.sub(pattern, lambda _: new, RIGHT) if old else RIGHT
    return text.replace("void pipeline(", f"void pipeline{number}(")


TEXTS = [kernel(0)] + [kernel(i, *fault[1:3]) for i, fault in enumerate(FAULTS.values(), start=1)]
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
    """What the kernel was stopped by, if it was, and whether its result is right."""
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
    kinds, _, _, inside = FAULTS[name]
    run(kernels, number, order)
    report = kernels.report
    assert report.findings and {f.kind for f in report.findings} <= set(kinds.split()), report
    begins = (HEAD + "".join(TEXTS[:number])).count("\n")
    parts = inside.split(" or ")  # a wait, or a read that it ought to keep back
    lines = [
        i
        for i, line in enumerate(TEXTS[number].splitlines(), begins + 1)
        if any(part in line for part in parts)
    ]
    told = [line for found in report.findings for line in (found.line, found.other_line)]
    assert set(lines) & set(told), report


MESSAGES = {  # in order "forward"
    "expects too many bytes": r"deadlock: waits for full\[0\], whose phase 0 \(parity 0\) lacks "
    r"512 of 1024 bytes; thread \(0, 0, 0\) waits in line \d+; thread block",
    "one thread of 128 arrives": r"empty\[0\], whose phase 0 \(parity 0\) lacks 127 of 128 ",
    "barrier that one warp skips": r"waits for barrier 2, which 96 of 128 threads have reached",
    "sums not fenced": r"In line \d+ thread 128 asynchronously reads staged\[\d+\], which thread "
    r"\d+ writes in line \d+, and no fence.proxy.async stands between the two",
    "does not wait for the product": r"accumulators of the wgmma of line \d+ before it has been ",
    "released before the product is done": r"In line \d+ thread 0 writes tile\[0\]\[0\] before the "
    r"wgmma that reads it, which thread 128 started in line \d+, has been waited for",
    "product of a lane less": r"only 127 of the 128 threads of the warp group come here",
    "expects too few bytes": r"full\[0\] gets 512 bytes in this phase, .* threads expect 256",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message_says_what_is_lacking(kernels, name):
    run(kernels, list(FAULTS).index(name) + 1, "forward")
    told = "\n".join(found.message for found in kernels.report.findings)
    assert re.search(MESSAGES[name], told), told


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_right_is_right_and_clean_whenever_copies_land(kernels, order, seed):
    error, is_right = run(kernels, 0, order, seed)
    assert not error and is_right and kernels.report.clean, kernels.report
    plain = Module(HEAD + TEXTS[0] + launcher("run", PARAMETERS, LAUNCHES.splitlines()[0]), SOURCE)
    assert run(plain, 0, order, seed) == ("", True)


@pytest.mark.parametrize(
    "name",
    [
        *("does not wait for the load", "does not wait for the product", "expects nothing"),
        *("commits nothing", "writes fragments early", "staged over a store"),
    ],
)
def test_what_is_touched_too_early_is_wrong_without_checks_too(name):
    """In order "forward", in which all lands as late as it may."""
    number = list(FAULTS).index(name) + 1
    launch = launcher("run", PARAMETERS, LAUNCHES.splitlines()[number])
    plain = Module(HEAD + TEXTS[number] + launch, SOURCE)
    error, is_right = run(plain, number, "forward")
    assert error.startswith("run: line") if error else not is_right


IDIOMS = SOURCE.with_name("async_idioms.cu")
LAUNCHED = re.sub(r"(// <<<.*)>>>", r"\1, 0>>>", IDIOMS.read_text())


@pytest.mark.parametrize("checked", [False, True])
def test_correct_idioms_are_not_accused_and_do_not_hang(checked):
    module = Module(with_launchers(LAUNCHED), IDIOMS, checked=checked)
    x = torch.randn(128, generator=torch.Generator().manual_seed(0))
    for name in re.findall(r"__global__ void (\w+)", LAUNCHED):
        for order in ORDERS:
            for seed in range(5 if order == "random" else 1):
                out = torch.zeros(128)
                with settings(order=order, seed=seed, time_limit=5):
                    getattr(module, f"run_{name}")(x, out)
                assert torch.allclose(out, 2 * x, atol=1e-5), (name, order, seed)
                assert not checked or module.report.clean, (name, order, module.report)


FENCED = re.search(r"// <<<1, 128, 0>>>\n__global__ void a_third_thread.*?\n}\n", LAUNCHED, re.S)[0]
FENCE = "if (threadIdx.x == 64) fence_proxy_async();"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{FENCE}\n    __syncthreads();\n    {FENCE}", f"__syncthreads();\n    {FENCE}"),
        (f"{FENCE}\n    __syncthreads();\n    {FENCE}", "__syncthreads();"),
        (f"__syncthreads();\n    {FENCE}\n    __syncthreads();", f"__syncthreads();\n    {FENCE}"),
        (f"staged[threadIdx.x] = 2 * x[threadIdx.x];\n    __syncthreads();\n    {FENCE}",
         f"{FENCE}\n    staged[threadIdx.x] = 2 * x[threadIdx.x];\n    __syncthreads();"),
    ],
    ids=["after the barrier", "none", "no barrier after it", "before the write"],
)  # fmt: skip
def test_a_third_threads_fence_must_stand_between(old, new):
    assert FENCED.count(old) == 1
    head = '#include "async.cuh"\n'
    module = Module(with_launchers(head + FENCED.replace(old, new)), IDIOMS, checked=True)
    for order in ORDERS:
        with settings(order=order, time_limit=5):
            module.run_a_third_thread_fences(torch.ones(128), torch.zeros(128))
        assert {f.kind for f in module.report.findings} == {"missing_fence"}, module.report
